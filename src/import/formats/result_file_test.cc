#include "import/formats/result_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "import/formats/test_files.h"

namespace hps {
namespace {

TEST(ResultFileTest, WritesANewFileAndReplacesAnOldOneBehindALink) {
  const TestDirectory directory;
  ASSERT_TRUE(WriteResultFile(directory.Path("f"), "first, which is longer").ok());
  EXPECT_EQ(directory.Read("f"), "first, which is longer");
  std::filesystem::permissions(directory.Path("f"), std::filesystem::perms(0640));
  std::filesystem::create_symlink("f", directory.Path("link"));
  ASSERT_TRUE(CheckResultFile(directory.Path("link")).ok());
  ASSERT_TRUE(WriteResultFile(directory.Path("link"), "second").ok());
  EXPECT_EQ(directory.Read("f"), "second");
  EXPECT_EQ(std::filesystem::status(directory.Path("f")).permissions(),
            std::filesystem::perms(0640));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("link")));
  EXPECT_EQ(directory.List(), (std::vector<std::string>{"f", "link"}));
}

// Catches: a result of record that is cut to nothing when the disk is full.
TEST(ResultFileTest, WhatCannotBeWrittenWholeLeavesTheOldFile) {
  const TestDirectory directory;
  directory.Write("f", "old");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = WriteResultFile(directory.Path("f"), "longer than that");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
  EXPECT_EQ(directory.Read("f"), "old");
  EXPECT_EQ(directory.List(), std::vector<std::string>{"f"});
}

TEST(ResultFileTest, WhatIsNoRegularFileStaysWhatItIs) {
  EXPECT_TRUE(CheckResultFile("/dev/null").ok());
  EXPECT_TRUE(WriteResultFile("/dev/null", "text").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(WriteResultFile("/dev/full", "text").code(), absl::StatusCode::kResourceExhausted);
}

TEST(ResultFileTest, AWrongPlaceIsFoundBeforeAnythingIsWritten) {
  const TestDirectory directory;
  EXPECT_EQ(CheckResultFile(directory.Path("none/f")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckResultFile(directory.Path("")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckResultFile(directory.Path("f")).ok());
  EXPECT_TRUE(directory.List().empty());
}

}  // namespace
}  // namespace hps
