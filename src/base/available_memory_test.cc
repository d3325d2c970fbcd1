#include "base/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "testing/test_directory.h"

namespace hps {
namespace {

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return directory_.path(); }
  uint64_t Available() const { return AvailableMemoryBytes(root()); }

  TestDirectory directory_;
};

TEST_F(AvailableMemoryTest, WithoutAnythingToReadNothingIsALimit) {
  EXPECT_EQ(Available(), UINT64_MAX);
}

TEST_F(AvailableMemoryTest, IsWhatTheSystemSays) {
  Write("/proc/meminfo", "MemTotal:  8000 kB\nMemFree:  100 kB\nMemAvailable:  5000 kB\n");
  EXPECT_EQ(Available(), 5000u * 1024);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(Available(), 5000u * 1024) << "a group without a limit";
}

TEST_F(AvailableMemoryTest, GroupsOfVersion2LimitIt) {
  Write("/proc/meminfo", "MemAvailable:  5000 kB\n");
  Write("/proc/self/cgroup", "0::/pods/one\n");
  Write("/sys/fs/cgroup/pods/one/memory.max", "1000000\n");
  Write("/sys/fs/cgroup/pods/one/memory.current", "600000\n");
  EXPECT_EQ(Available(), 400'000u);
  Write("/sys/fs/cgroup/pods/one/memory.stat", "anon 500000\ninactive_file 50000\nfile 90000\n");
  EXPECT_EQ(Available(), 450'000u) << "pages of files can be given up";
  Write("/sys/fs/cgroup/pods/memory.max", "2000000\n");
  Write("/sys/fs/cgroup/pods/memory.current", "1900000\n");
  EXPECT_EQ(Available(), 100'000u) << "the group around it has less";
  Write("/sys/fs/cgroup/pods/memory.current", "2100000\n");
  EXPECT_EQ(Available(), 0u);
}

TEST_F(AvailableMemoryTest, GroupsOfVersion1LimitIt) {
  Write("/proc/meminfo", "MemAvailable:  5000 kB\n");
  Write("/proc/self/cgroup", "5:cpuset:/a\n4:cpu,memory:/docker/b\n0::/x\n");
  // As a container sees it: its own group is the outermost one.
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "700000\n");
  Write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
  EXPECT_EQ(Available(), 400'000u);
}

TEST(AvailableMemoryOfThisMachineTest, IsKnown) {
  EXPECT_GT(AvailableMemoryBytes(), uint64_t{1} << 20);
  EXPECT_LT(AvailableMemoryBytes(), uint64_t{1} << 50);
}

}  // namespace
}  // namespace hps
