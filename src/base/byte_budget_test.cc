#include "base/byte_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace hps {
namespace {

TEST(ByteBudgetTest, LendsNoMoreThanThereIs) {
  ByteBudget budget("a cache", 100);
  std::optional<ByteBudget::Lease> most = *budget.Lend(60);
  const absl::Status refused = budget.Lend(41).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::StartsWith("a cache: "), testing::HasSubstr("41 bytes"),
                             testing::HasSubstr("40 of 100 bytes")));
  EXPECT_EQ(budget.Lend(UINT64_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  {
    const auto rest = budget.Lend(40);
    EXPECT_TRUE(rest.ok());
    EXPECT_FALSE(budget.Lend(1).ok());
  }
  EXPECT_TRUE(budget.Lend(40).ok());
  most.reset();
  EXPECT_TRUE(budget.Lend(100).ok());
}

TEST(ByteBudgetTest, GrowsAndNeverShrinks) {
  ByteBudget budget("rows", 100);
  const auto most = budget.Lend(90);
  budget.GrowTo(150);
  EXPECT_FALSE(budget.Lend(61).ok());
  EXPECT_TRUE(budget.Lend(60).ok());
  EXPECT_EQ(budget.bytes_left(), uint64_t{60});
  budget.GrowTo(50);
  EXPECT_TRUE(budget.Lend(60).ok());
}

TEST(ByteBudgetTest, ALeaseThatWasMovedFromGivesNothingBack) {
  ByteBudget budget("a cache", 100);
  ByteBudget::Lease first = *budget.Lend(60);
  std::optional<ByteBudget::Lease> second;
  {
    ByteBudget::Lease passing = std::move(first);
    second.emplace(std::move(passing));
  }
  EXPECT_FALSE(budget.Lend(41).ok());
  second.reset();
  EXPECT_TRUE(budget.Lend(100).ok());
}

TEST(ByteBudgetDeathTest, ATableThatOutlivesItsCacheIsABug) {
  const auto leave_lent = [] {
    std::optional<ByteBudget> budget(std::in_place, "a cache", 100);
    const ByteBudget::Lease lease = *budget->Lend(1);
    budget.reset();
  };
  EXPECT_DEATH(leave_lent(), "bytes_lent_ == 0");
}

TEST(ByteBudgetTest, NeverLendsLeakedBytes) {
  ByteBudget budget("a cache", 100);
  {
    auto lease = budget.Lend(60);
    ASSERT_TRUE(lease.ok()) << lease.status();
    lease->Leak();
  }
  EXPECT_EQ(budget.Lend(41).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Lend(40).ok());
}

}  // namespace
}  // namespace hps
