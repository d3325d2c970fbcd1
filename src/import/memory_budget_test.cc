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

// The system would clear the memory of a new one.
TEST(MemoryBudgetTest, ALargeBufferIsUsedAgain) {
  MemoryBudget budget(10 << 20);
  const auto create = [&](size_t bytes) { return *BudgetBuffer<std::byte>::Create(budget, bytes); };
  const std::byte* first = nullptr;
  {
    const auto buffer = create(5 << 20);
    first = buffer.elements().data();
    std::memset(buffer.elements().data(), 7, 5 << 20);
  }
  {
    const auto again = create(5 << 20);
    EXPECT_EQ(again.elements().data(), first);
    EXPECT_EQ(again.elements().back(), std::byte{7});
    EXPECT_EQ(again.ElementsAs<uint64_t>().size(), 5U << 17);
    const auto other = create(5 << 20);
    EXPECT_NE(other.elements().data(), first);
  }
  // Two kept buffers are given up for one that needs their room: it is not theirs.
  EXPECT_EQ(create(9 << 20).elements().front(), std::byte{0});
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
