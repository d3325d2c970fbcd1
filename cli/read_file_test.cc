#include "cli/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace hps::cli {
namespace {

using ::testing::HasSubstr;

class ReadFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hps_read_file_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void ExpectError(const std::string& path, absl::StatusCode code, const std::string& why) const {
    const absl::Status status = ReadFile(path, 100).status();
    EXPECT_EQ(status.code(), code) << path << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + path + "'"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  std::string directory_;
};

TEST_F(ReadFileTest, ReadsAllUpToTheMaximum) {
  const std::string path = directory_ + "/f";
  for (const size_t size : {0u, 1u, 65535u, 65536u, 65537u, 200'000u}) {
    const std::string text(size, 'x');
    std::ofstream(path) << text;
    EXPECT_EQ(ReadFile(path, size).value(), text) << size;
    if (size == 0) continue;
    EXPECT_EQ(ReadFile(path, size - 1).status().code(), absl::StatusCode::kResourceExhausted)
        << size;
  }
}

// Catches: a stream that fails without an error number, whose status is OK then; a directory, which
// opens as a file does.
TEST_F(ReadFileTest, SaysWhyItCanNotBeRead) {
  ExpectError(directory_ + "/none", absl::StatusCode::kNotFound, "No such file");
  ExpectError(directory_, absl::StatusCode::kInvalidArgument, "Is a directory");
  ExpectError("/proc/self/mem", absl::StatusCode::kUnavailable, "Input/output error");
}

TEST_F(ReadFileTest, AFileWithoutAnEndIsRefused) {
  ExpectError("/dev/zero", absl::StatusCode::kResourceExhausted, "more than 100 bytes");
}

TEST_F(ReadFileTest, AnErrorHasTheCodeThatFits) {
  EXPECT_EQ(FileError("p", EACCES, "read"),
            absl::PermissionDeniedError("'p' can't be read: Permission denied"));
  EXPECT_EQ(FileError("p", ENOTDIR, "read").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FileError("p", ENOSPC, "written").code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps::cli
