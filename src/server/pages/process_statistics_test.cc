#include "server/pages/process_statistics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace hps::server {
namespace {

TEST(ProcessStatisticsTest, IsThisProcess) {
  const ProcessStatistics before = ReadProcessStatistics();
  EXPECT_GT(before.resident_bytes, 1u << 20);
  EXPECT_GT(before.virtual_bytes, before.resident_bytes);
  EXPECT_GE(before.threads, 1u);
  EXPECT_GE(before.open_files_max, before.open_files);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(before.start_unix_seconds, now + 2);
  EXPECT_GT(before.start_unix_seconds, now - 3600);
}

TEST(ProcessStatisticsTest, FollowsWhatTheProcessDoes) {
  const ProcessStatistics before = ReadProcessStatistics();
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  std::vector<char> memory(64 << 20, 'x');
  uint64_t sum = 0;
  for (double cpu = before.cpu_seconds; cpu < before.cpu_seconds + 0.02;
       cpu = ReadProcessStatistics().cpu_seconds) {
    for (const char c : memory) sum += static_cast<unsigned char>(c);
  }
  const ProcessStatistics after = ReadProcessStatistics();
  EXPECT_EQ(after.open_files, before.open_files + 1);
  EXPECT_GE(after.resident_bytes, before.resident_bytes + (32 << 20));
  EXPECT_GT(sum, 0u);
  std::fclose(file);
}

}  // namespace
}  // namespace hps::server
