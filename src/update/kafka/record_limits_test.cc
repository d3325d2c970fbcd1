#include "update/kafka/record_limits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace hps {
namespace {

Deadline InAMoment() { return DeadlineAfter(RealClock(), std::chrono::milliseconds(1)); }

TEST(RecordLimitsTest, RecordsThatExistTakeMemory) {
  RecordLimits limits({.brokers = "", .group = "", .memory_bytes_max = 100});
  const std::vector<std::byte> payload(60);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(limits.WaitForRoom(InAMoment()));
    limits.Take(payload);
  }
  EXPECT_FALSE(limits.WaitForRoom(InAMoment()));
  EXPECT_TRUE(limits.RatesLetPass()) << "there is no limit of a rate";
  EXPECT_EQ(limits.memory_bytes(), 120u);
  limits.Release(60);
  EXPECT_TRUE(limits.WaitForRoom(InAMoment()));
  limits.Release(60);
  EXPECT_EQ(limits.memory_bytes(), 0u);
  EXPECT_EQ(limits.records_given(), 2u);
  EXPECT_EQ(limits.bytes_given(), 120u);
}

TEST(RecordLimitsTest, ARateHoldsRecordsBack) {
  RecordLimits limits({.brokers = "", .group = "", .bytes_per_second_max = 1000});
  EXPECT_TRUE(limits.WaitForRoom(InAMoment()));
  limits.Take(std::vector<std::byte>(1020));  // a second that was not used, and 20 ms
  EXPECT_FALSE(limits.RatesLetPass());
  EXPECT_FALSE(limits.WaitForRoom(InAMoment()));
  EXPECT_TRUE(limits.WaitForRoom(DeadlineAfter(RealClock(), std::chrono::seconds(30))));
  EXPECT_TRUE(limits.RatesLetPass());
}

TEST(RecordLimitsTest, RowsHaveARateToo) {
  RecordLimits limits({.brokers = "", .group = "", .rows_per_second_max = 1});
  std::vector<std::byte> payload(8 + 60 * 16);  // HugeCTR's: 60 rows of 8 bytes
  std::memcpy(payload.data(), "HCTR\x08", 5);
  limits.Take(payload);
  EXPECT_FALSE(limits.RatesLetPass());
}

}  // namespace
}  // namespace hps
