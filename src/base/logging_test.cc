#include "base/logging.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/log_limiter.h"

namespace hps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string Logged(LogLevel level, const std::function<void()>& log) {
  SetLogLevel(level);
  testing::internal::CaptureStderr();
  log();
  std::string written = testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kWarning);
  return written;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class LogTest : public testing::Test {
 protected:
  LogTest()
      : directory_(testing::TempDir() + "log_test_" + std::to_string(getpid())),
        path_(directory_ + "/hps.log") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }
  ~LogTest() override {
    EXPECT_TRUE(ConfigureLog({}).ok());
    std::filesystem::remove_all(directory_);
  }

  const std::string directory_;
  const std::string path_;
};

TEST_F(LogTest, DropsWhatIsBelowTheLevel) {
  EXPECT_THAT(Logged(LogLevel::kWarning, [] { LogWarning("disk slow"); }),
              EndsWith(" warning disk slow\n"));
  EXPECT_EQ(Logged(LogLevel::kWarning, [] { LogInfo("opened"); }), "");
  EXPECT_THAT(Logged(LogLevel::kDebug, [] { LogDebug("step"); }), EndsWith(" debug step\n"));
  EXPECT_THAT(Logged(LogLevel::kInfo, [] { LogInfo("opened"); }), EndsWith(" info opened\n"));
  EXPECT_THAT(Logged(LogLevel::kError, [] { LogError("lost"); }), EndsWith(" error lost\n"));
  EXPECT_EQ(Logged(LogLevel::kError, [] { LogWarning("disk slow"); }), "");
  EXPECT_EQ(Logged(LogLevel::kOff, [] { LogError("lost"); }), "");
}

// Messages of RocksDB end with a line break of their own; a request's id may hold anything.
TEST_F(LogTest, AnEventIsOneLine) {
  EXPECT_THAT(Logged(LogLevel::kWarning, [] { LogError("two\nlines\x1b[2J\n"); }),
              EndsWith(" error two lines [2J \n"));
}

TEST_F(LogTest, JsonLinesSayWhereTheyComeFrom) {
  ASSERT_TRUE(ConfigureLog({.format = LogFormat::kJson, .file = path_}).ok());
  LogWarning("a \"quoted\"\nline");
  EXPECT_THAT(ReadFile(path_),
              MatchesRegex("\\{\"time\":\"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z\",\"level\":"
                           "\"warning\",\"message\":\"a \\\\\"quoted\\\\\"\\\\nline\","
                           "\"place\":\"logging_test.cc:[0-9]+\"\\}\n"));
}

TEST_F(LogTest, AppendsToAFileThatOthersMayNotRead) {
  std::ofstream(path_) << "before\n";
  ASSERT_TRUE(ConfigureLog({.file = path_}).ok());
  LogWarning("after");
  EXPECT_THAT(ReadFile(path_), testing::StartsWith("before\n"));
  EXPECT_THAT(ReadFile(path_), EndsWith(" warning after\n"));
  const std::string fresh = directory_ + "/fresh.log";
  ASSERT_TRUE(ConfigureLog({.file = fresh}).ok());
  struct stat status {};
  ASSERT_EQ(stat(fresh.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0007, 0U);
}

TEST_F(LogTest, ReopenGoesOnInANewFileAfterRotation) {
  ASSERT_TRUE(ConfigureLog({.file = path_}).ok());
  LogWarning("first");
  std::filesystem::rename(path_, path_ + ".1");
  LogWarning("second");
  ASSERT_TRUE(ReopenLog().ok());
  LogWarning("third");
  EXPECT_THAT(ReadFile(path_ + ".1"), HasSubstr("second"));
  EXPECT_THAT(ReadFile(path_), EndsWith(" warning third\n"));
  EXPECT_THAT(ReadFile(path_), testing::Not(HasSubstr("second")));
}

TEST_F(LogTest, AFileThatCanNotBeOpenedLeavesTheLogAsItWas) {
  ASSERT_TRUE(ConfigureLog({.file = path_}).ok());
  EXPECT_EQ(ConfigureLog({.file = directory_ + "/none/hps.log"}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(ConfigureLog({.file = directory_}).ok());
  LogWarning("still here");
  EXPECT_THAT(ReadFile(path_), EndsWith(" warning still here\n"));
  std::filesystem::rename(directory_, directory_ + ".moved");
  EXPECT_EQ(ReopenLog().code(), absl::StatusCode::kNotFound);
  LogWarning("and here");
  EXPECT_THAT(ReadFile(directory_ + ".moved/hps.log"), EndsWith(" warning and here\n"));
  std::filesystem::rename(directory_ + ".moved", directory_);
}

// Catches a server that blocks forever because its log is not read: at its start, or at its next
// line.
TEST_F(LogTest, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = directory_ + "/link";
  std::filesystem::create_symlink(pipe, link);
  for (const std::string& other : {pipe, link, directory_}) {
    const absl::Status refused = ConfigureLog({.file = other});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("'" + other + "': expected a regular"));
  }
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(ConfigureLog({.file = pipe}).code(), absl::StatusCode::kInvalidArgument)
      << "it may stop to read";
  close(reader);
  ASSERT_TRUE(ConfigureLog({.file = path_}).ok());
  std::filesystem::remove(path_);
  std::filesystem::rename(pipe, path_);
  EXPECT_EQ(ReopenLog().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ConfigureLog({.file = "/dev/null"}).ok());
}

TEST_F(LogTest, AFullDiskIsToldOnStderrAndStopsNobody) {
  ASSERT_TRUE(ConfigureLog({.file = "/dev/full"}).ok());
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) LogWarning("lost");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "hps: the log can't be written: No space left on device\n");
}

TEST_F(LogTest, APlaceThatLoopsIsLimitedAndSaysHowMuchWasLeftOut) {
  ASSERT_TRUE(ConfigureLog({.file = path_}).ok());
  const LogCounts before = CountLogLines();
  const auto say = [](uint32_t times) {
    for (uint32_t i = 0; i < times; ++i) LogWarning("again");
  };
  say(5 * LogLimiter::kBurstLines);
  const LogCounts after = CountLogLines();
  const uint64_t written = after.written[static_cast<size_t>(LogLevel::kWarning)] -
                           before.written[static_cast<size_t>(LogLevel::kWarning)];
  EXPECT_GE(written, LogLimiter::kBurstLines);
  EXPECT_EQ(written + (after.left_out - before.left_out), 5U * LogLimiter::kBurstLines);
  EXPECT_GT(after.left_out, before.left_out);
  LogWarning("another place");
  EXPECT_THAT(ReadFile(path_), EndsWith(" warning another place\n"));
}

// Under the thread sanitizer, a race of writers, rotation and the level; here, whole lines.
TEST_F(LogTest, ThreadsWriteWholeLinesWhileTheLogIsReopened) {
  ASSERT_TRUE(ConfigureLog({.file = path_}).ok());
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([] {
      for (int line = 0; line < 5; ++line) LogError(std::string(200, 'x'));
    });
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(ReopenLog().ok());
    SetLogLevel(LogLevel::kInfo);
  }
  for (std::thread& writer : writers) writer.join();
  std::istringstream lines(ReadFile(path_));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(line, EndsWith(" error " + std::string(200, 'x')));
  }
  EXPECT_EQ(count, 20);
}

}  // namespace
}  // namespace hps
