#include "tier/byte_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(ByteBudgetTest, LendsNoMoreThanThereIs) {
  ByteBudget budget("a cache", 100);
  EXPECT_TRUE(budget.Reserve(60).ok());
  const absl::Status refused = budget.Reserve(41);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::StartsWith("a cache: "), testing::HasSubstr("41 bytes"),
                             testing::HasSubstr("40 of 100 bytes")));
  EXPECT_EQ(budget.Reserve(UINT64_MAX).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Reserve(40).ok());
  budget.Release(60);
  budget.Release(40);
  EXPECT_TRUE(budget.Reserve(100).ok());
  budget.Release(100);
}

TEST(ByteBudgetDeathTest, ATableThatOutlivesItsCacheIsABug) {
  const auto leave_lent = [] {
    ByteBudget budget("a cache", 100);
    (void)budget.Reserve(1);
  };
  EXPECT_DEATH(leave_lent(), "bytes_lent_ == 0");
}

}  // namespace
}  // namespace hps
