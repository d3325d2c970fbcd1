#include "model/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/hash.h"

namespace hps {
namespace {

using Budgets = std::vector<uint64_t>;

TEST(BudgetTest, EveryTableGetsWhatItNeedsWhenAllFit) {
  const std::vector<BudgetRequest> requests = {{.least_bytes = 10, .needed_bytes = 100},
                                               {.least_bytes = 300, .needed_bytes = 300}};
  EXPECT_EQ(*DivideBudget(400, requests), (Budgets{100, 300}));
  EXPECT_EQ(*DivideBudget(1000, requests), (Budgets{100, 300}));
  EXPECT_TRUE(DivideBudget(0, {})->empty());
}

TEST(BudgetTest, DividesByNeedAboveTheLeastWhenTheyDoNot) {
  const std::vector<BudgetRequest> requests = {{.least_bytes = 10, .needed_bytes = 110},
                                               {.least_bytes = 20, .needed_bytes = 320},
                                               {.least_bytes = 30, .needed_bytes = 30}};
  EXPECT_EQ(*DivideBudget(260, requests), (Budgets{60, 170, 30}));
  EXPECT_EQ(*DivideBudget(60, requests), (Budgets{10, 20, 30}));
  EXPECT_EQ(DivideBudget(59, requests).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(BudgetTest, ATableMayHaveABudgetOfItsOwn) {
  const std::vector<BudgetRequest> requests = {
      {.table = "a", .needed_bytes = 100},
      {.table = "b", .needed_bytes = 300, .share = 0.5},
      {.table = "c", .needed_bytes = 300, .fixed_bytes = 20},
      {.table = "d", .needed_bytes = 300, .share = 0.0}};
  EXPECT_EQ(*DivideBudget(270, requests), (Budgets{100, 150, 20, 0}));
  EXPECT_EQ(*DivideBudget(220, requests), (Budgets{50, 150, 20, 0}));
}

// A share of a small table would be less than any table needs, and opening the level would fail.
TEST(BudgetTest, AShareIsNeverLessThanATableNeeds) {
  const std::vector<BudgetRequest> requests = {
      {.table = "a", .least_bytes = 90, .needed_bytes = 100, .share = 0.5},
      {.table = "b", .least_bytes = 90, .needed_bytes = 100, .share = 0.0}};
  EXPECT_EQ(*DivideBudget(200, requests), (Budgets{90, 0}));
}

TEST(BudgetTest, WhatDoesNotFitIsRefused) {
  const auto code = [](uint64_t bytes_left, const BudgetRequest& request) {
    return DivideBudget(bytes_left, {&request, 1}).status().code();
  };
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(code(10, {.table = "a", .needed_bytes = 11, .share = 1.0}), kExhausted);
  EXPECT_EQ(code(10, {.table = "a", .needed_bytes = 0, .fixed_bytes = 11}), kExhausted);
  EXPECT_EQ(code(10, {.table = "a", .least_bytes = 11, .needed_bytes = 11}), kExhausted);
  EXPECT_EQ(code(10, {.table = "a", .least_bytes = 10, .needed_bytes = 11}), absl::StatusCode::kOk);
}

TEST(BudgetTest, NeverGivesMoreThanThereIs) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 10'000; ++i) {
    std::vector<BudgetRequest> requests(random() % 40);
    for (BudgetRequest& request : requests) {
      request.needed_bytes = random() >> (random() % 64);
      request.least_bytes = std::min<uint64_t>(request.needed_bytes, random() % 100);
      if (random() % 8 == 0) request.share = 0.001 * static_cast<double>(random() % 1000);
    }
    const uint64_t bytes_left = random() >> (random() % 64);
    const auto budgets = DivideBudget(bytes_left, requests);
    if (!budgets.ok()) continue;
    Uint128 sum = 0;
    for (const uint64_t bytes : *budgets) sum += bytes;
    ASSERT_TRUE(sum <= bytes_left);
  }
}

}  // namespace
}  // namespace hps
