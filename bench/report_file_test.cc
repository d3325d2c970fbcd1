#include "bench/report_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "import/formats/test_files.h"

namespace hps::bench {
namespace {

TEST(ReportFileTest, WritesANewFileAndReplacesAnOldOneBehindALink) {
  const TestDirectory directory;
  ASSERT_TRUE(WriteReportFile(directory.Path("f"), "first, which is longer").ok());
  EXPECT_EQ(directory.Read("f"), "first, which is longer");
  std::filesystem::permissions(directory.Path("f"), std::filesystem::perms(0640));
  std::filesystem::create_symlink("f", directory.Path("link"));
  ASSERT_TRUE(CheckReportFile(directory.Path("link")).ok());
  ASSERT_TRUE(WriteReportFile(directory.Path("link"), "second").ok());
  EXPECT_EQ(directory.Read("f"), "second");
  EXPECT_EQ(std::filesystem::status(directory.Path("f")).permissions(),
            std::filesystem::perms(0640));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("link")));
  EXPECT_EQ(directory.List(), (std::vector<std::string>{"f", "link"}));
}

// Catches: a result of record that is cut to nothing when the disk is full.
TEST(ReportFileTest, WhatCannotBeWrittenWholeLeavesTheOldFile) {
  const TestDirectory directory;
  directory.Write("f", "old");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = WriteReportFile(directory.Path("f"), "longer than that");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
  EXPECT_EQ(directory.Read("f"), "old");
  EXPECT_EQ(directory.List(), std::vector<std::string>{"f"});
}

TEST(ReportFileTest, WhatIsNoRegularFileStaysWhatItIs) {
  EXPECT_TRUE(CheckReportFile("/dev/null").ok());
  EXPECT_TRUE(WriteReportFile("/dev/null", "text").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(WriteReportFile("/dev/full", "text").code(), absl::StatusCode::kResourceExhausted);
}

TEST(ReportFileTest, AWrongPlaceIsFoundBeforeAnythingIsWritten) {
  const TestDirectory directory;
  EXPECT_EQ(CheckReportFile(directory.Path("none/f")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckReportFile(directory.Path("")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckReportFile(directory.Path("f")).ok());
  EXPECT_TRUE(directory.List().empty());
}

}  // namespace
}  // namespace hps::bench
