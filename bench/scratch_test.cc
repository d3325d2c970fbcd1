#include "bench/scratch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hps::bench {
namespace {

TEST(ScratchTest, IsMadeWithWhatIsAboveItAndRemovedWithWhatIsInIt) {
  const std::string top = testing::TempDir() + "/hps_scratch_test";
  ASSERT_TRUE(MakeScratch(top + "/a/b").ok());
  ASSERT_TRUE(MakeScratch(top + "/a/b").ok()) << "it is there already";
  EXPECT_TRUE(std::filesystem::is_directory(top + "/a/b"));
  std::ofstream(top + "/a/file") << "left by a scenario";
  RemoveScratch(top);
  EXPECT_FALSE(std::filesystem::exists(top));
  RemoveScratch(top);
}

TEST(ScratchTest, WhatIsInTheWayIsNamed) {
  const std::string file = testing::TempDir() + "/hps_scratch_test_file";
  std::ofstream(file) << "no directory";
  const absl::Status made = MakeScratch(file + "/a");
  EXPECT_EQ(made.code(), absl::StatusCode::kFailedPrecondition) << made;
  EXPECT_NE(made.message().find("can't make the directory " + file + "/a: "), std::string::npos)
      << made;
  RemoveScratch(file);
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace hps::bench
