#include "node/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"

namespace hps {
namespace {

using Budgets = std::vector<uint64_t>;

TEST(BudgetTest, EveryTableGetsWhatItNeedsWhenAllFit) {
  const std::vector<BudgetRequest> requests = {{.least_bytes = 10, .needed_bytes = 100},
                                               {.least_bytes = 300, .needed_bytes = 300}};
  EXPECT_EQ(DivideBudget(400, requests), (Budgets{100, 300}));
  EXPECT_EQ(DivideBudget(1000, requests), (Budgets{100, 300}));
  EXPECT_TRUE(DivideBudget(0, {}).empty());
}

TEST(BudgetTest, SmallTablesAreWholeAndLargeOnesEqualWhenTheyDoNot) {
  const std::vector<BudgetRequest> requests = {{.least_bytes = 10, .needed_bytes = 110},
                                               {.least_bytes = 20, .needed_bytes = 320},
                                               {.least_bytes = 30, .needed_bytes = 30}};
  EXPECT_EQ(DivideBudget(260, requests), (Budgets{110, 120, 30}));
  EXPECT_EQ(DivideBudget(360, requests), (Budgets{110, 220, 30}));
  EXPECT_EQ(DivideBudget(160, requests), (Budgets{60, 70, 30}));
  EXPECT_EQ(DivideBudget(60, requests), (Budgets{10, 20, 30}));
}

TEST(BudgetTest, WhoFindsLessThanItsLeastGetsNothing) {
  const std::vector<BudgetRequest> requests = {{.least_bytes = 10, .needed_bytes = 110},
                                               {.least_bytes = 50, .needed_bytes = 320},
                                               {.least_bytes = 30, .needed_bytes = 40}};
  EXPECT_EQ(DivideBudget(59, requests), (Budgets{20, 0, 39}));
  EXPECT_EQ(DivideBudget(9, requests), (Budgets{0, 0, 0}));
  const std::vector<BudgetRequest> own = {
      {.least_bytes = 10, .needed_bytes = 100, .fixed_bytes = 80},
      {.least_bytes = 10, .needed_bytes = 100, .share = 0.5},
      {.least_bytes = 10, .needed_bytes = 100, .fixed_bytes = 9}};
  EXPECT_EQ(DivideBudget(100, own), (Budgets{80, 20, 0}));
  EXPECT_EQ(DivideBudget(89, own), (Budgets{80, 0, 0}));
}

TEST(BudgetTest, ATableMayHaveABudgetOfItsOwn) {
  const std::vector<BudgetRequest> requests = {{.needed_bytes = 100},
                                               {.needed_bytes = 300, .share = 0.5},
                                               {.needed_bytes = 300, .fixed_bytes = 20},
                                               {.needed_bytes = 300, .share = 0.0}};
  EXPECT_EQ(DivideBudget(270, requests), (Budgets{100, 150, 20, 0}));
  EXPECT_EQ(DivideBudget(220, requests), (Budgets{50, 150, 20, 0}));
  EXPECT_TRUE(requests[2].wants_any());
  EXPECT_FALSE(requests[3].wants_any());
}

// Catches: a share of a small table that is less than the minimum, so that opening it fails.
TEST(BudgetTest, AShareIsNeverLessThanATableNeeds) {
  const std::vector<BudgetRequest> requests = {
      {.least_bytes = 90, .needed_bytes = 100, .share = 0.5},
      {.least_bytes = 90, .needed_bytes = 100, .share = 0.0}};
  EXPECT_EQ(DivideBudget(200, requests), (Budgets{90, 0}));
}

TEST(BudgetTest, NeverGivesMoreThanThereIs) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<BudgetRequest> requests(random() % 40);
    const uint64_t bytes_max = random() >> (random() % 64);
    for (BudgetRequest& request : requests) {
      request.needed_bytes = random() >> (random() % 64);
      request.least_bytes = std::min<uint64_t>(request.needed_bytes, random() % 100);
      if (random() % 8 == 0) request.share = 0.001 * static_cast<double>(random() % 1000);
    }
    const Budgets parts = DivideBudget(bytes_max, requests);
    ASSERT_EQ(parts.size(), requests.size());
    Uint128 sum = 0;
    for (size_t t = 0; t < parts.size(); ++t) {
      sum += parts[t];
      if (parts[t] == 0) continue;
      EXPECT_GE(parts[t], requests[t].least_bytes);
    }
    ASSERT_TRUE(sum <= bytes_max);
  }
}

std::string WarningsOf(const LevelRoom& room, const std::vector<BudgetRequest>& requests) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(DivideRoom(room, requests), DivideBudget(room.bytes_left, requests));
  return testing::internal::GetCapturedStderr();
}

TEST(BudgetTest, ATableThatFindsTooLittleIsToldWhoHoldsTheRest) {
  using ::testing::HasSubstr;
  LevelRoom room = {.level = "level 2",
                    .setting = "l2.bytes_max",
                    .without = "is served without level 2",
                    .bytes_max = 1024,
                    .bytes_left = 1024};
  BudgetRequest request = {.least_bytes = 20, .needed_bytes = 4000, .table = "new/t"};
  EXPECT_EQ(WarningsOf(room, {request}), "");
  room.bytes_left = 10;
  EXPECT_THAT(WarningsOf(room, {request}),
              HasSubstr("table 'new/t' is served without level 2: it needs at least 20B, and less "
                        "of l2.bytes_max = 1KiB is left\n"));
  room.holders = {"b", "a", "new"};
  EXPECT_THAT(WarningsOf(room, {request}),
              HasSubstr("is left; a restart divides the level among all models. Without a restart: "
                        "unload model new and others that hold the level (a, b), then load new "
                        "first\n"));
  room.holders = {"new"};
  EXPECT_THAT(WarningsOf(room, {request}), HasSubstr("unload model new, then load new first\n"));
  room.bytes_left = 511;
  EXPECT_THAT(WarningsOf(room, {request}),
              HasSubstr("table 'new/t' has only 511B of level 2: no more of l2.bytes_max = 1KiB is "
                        "left; a restart"));
  room.bytes_left = 512;
  EXPECT_EQ(WarningsOf(room, {request}), "");
  room.bytes_left = 0;
  BudgetRequest outside = request;
  outside.share = 0.0;
  BudgetRequest waiting = request;
  waiting.waits = true;
  EXPECT_EQ(WarningsOf(room, {outside, waiting}), "");
}

// Catches: a table that is too large for the level and takes the shares of all others.
TEST(NeedOfTest, HasAnEndForATableThatFitsNoLevel) {
  EXPECT_EQ(NeedOf(123, 10, 4), 123u);
  EXPECT_EQ(NeedOf(UINT64_MAX, uint64_t{1} << 32, 16), uint64_t{1} << 36);
  EXPECT_EQ(NeedOf(UINT64_MAX, UINT64_MAX / 16, 16), UINT64_MAX / 16 * 16);
  EXPECT_EQ(NeedOf(UINT64_MAX, UINT64_MAX / 16 + 1, 16), UINT64_MAX);
  const uint64_t large = NeedOf(UINT64_MAX, uint64_t{1} << 32, 16);
  const std::vector<BudgetRequest> requests = {
      {.least_bytes = 1 << 10, .needed_bytes = large},
      {.least_bytes = 1 << 10, .needed_bytes = large / 4},
  };
  const std::vector<uint64_t> parts = DivideBudget(uint64_t{5} << 20, requests);
  EXPECT_NEAR(static_cast<double>(parts[0]), 5 << 19, 4 << 10);
  EXPECT_NEAR(static_cast<double>(parts[1]), 5 << 19, 4 << 10);
}

TEST(RowsThatFitTest, IsTheMostThatFit) {
  const auto bytes_for = [](uint64_t rows, size_t row_bytes) {
    return 1000 + (rows + 9) / 10 * 10 * (row_bytes + 4);
  };
  EXPECT_EQ(RowsThatFit(0, 16, {}), 0u);
  EXPECT_EQ(RowsThatFit(1199, 16, bytes_for), 0u);
  EXPECT_EQ(RowsThatFit(1200, 16, bytes_for), 10u);
  EXPECT_EQ(RowsThatFit(uint64_t{1} << 40, 16, bytes_for), ((uint64_t{1} << 40) - 1000) / 200 * 10);
}

}  // namespace
}  // namespace hps
