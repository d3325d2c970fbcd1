#include "import/memory_budget.h"

#include <gtest/gtest.h>

#include <cstring>

namespace hps {
namespace {

TEST(MemoryBudgetTest, CountsAllocatedBytes) {
  MemoryBudget budget(10 << 20);
  {
    auto small = BudgetBuffer<uint64_t>::Create(budget, 1000);
    ASSERT_TRUE(small.ok());
    EXPECT_EQ(small->elements().size(), 1000U);
    EXPECT_EQ(budget.bytes_peak(), 8000U);
    auto mapped = BudgetBuffer<std::byte>::Create(budget, 5 << 20);
    ASSERT_TRUE(mapped.ok());
    std::memset(mapped->elements().data(), 1, mapped->elements().size());
    EXPECT_EQ(budget.bytes_peak(), 8000U + (5 << 20));
    BudgetBuffer<uint64_t> moved = *std::move(small);
    moved.elements()[999] = 7;
    *mapped = BudgetBuffer<std::byte>();
    // Catches: a mapping that is not freed; the next allocation would abort.
    auto again = BudgetBuffer<std::byte>::Create(budget, 9 << 20);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(moved.elements()[999], 7U);
  }
  EXPECT_EQ(budget.bytes_peak(), 8000U + (9 << 20));
  EXPECT_TRUE(BudgetBuffer<std::byte>::Create(budget, 10 << 20).ok());
  EXPECT_TRUE(BudgetBuffer<std::byte>::Create(budget, 0).ok());
}

TEST(MemoryBudgetDeathTest, AllocatingMoreThanPlannedIsABug) {
  MemoryBudget budget(100);
  EXPECT_DEATH(static_cast<void>(BudgetBuffer<std::byte>::Create(budget, 101)), "check failed");
}

TEST(MemoryBudgetTest, ASystemWithoutMemoryIsAnError) {
  MemoryBudget budget(uint64_t{1} << 62);
  const auto buffer = BudgetBuffer<std::byte>::Create(budget, size_t{1} << 60);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps
