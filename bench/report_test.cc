#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hps::bench {
namespace {

using ::testing::HasSubstr;

Machine AMachine() {
  return Machine{.cpu = "a cpu", .gpu = "", .commit = "abc", .date = "2026-01-02T03:04:05Z"};
}

Result Fetch() {
  Result result = MakeResult("fetch", "keys/s", 90, 100);
  result.params = {{"dim", "32"}, {"threads", "2"}};
  result.target = ">= 0.85";
  result.runs = 5;
  return result;
}

TEST(ReportTest, JsonHoldsWhatAppliesAndNothingElse) {
  const std::vector<Result> results = {Fetch(), MakeResult("memory", "bytes", 12, std::nullopt)};
  const auto json = nlohmann::json::parse(ReportJson("l2", AMachine(), results));
  EXPECT_EQ(json["scenario"], "l2");
  EXPECT_EQ(
      json["machine"],
      (nlohmann::json{{"cpu", "a cpu"}, {"commit", "abc"}, {"date", "2026-01-02T03:04:05Z"}}));
  const auto& fetch = json["results"][0];
  EXPECT_EQ(fetch["params"]["threads"], "2");
  EXPECT_DOUBLE_EQ(fetch["ratio"], 0.9);
  EXPECT_EQ(fetch["target"], ">= 0.85");
  EXPECT_FALSE(fetch.contains("p50"));
  EXPECT_FALSE(json["results"][1].contains("bound"));
  EXPECT_FALSE(json["results"][1].contains("ratio"));
  EXPECT_FALSE(json["results"][1].contains("target"));
}

TEST(ReportTest, TextSaysWhetherTargetsAreMet) {
  Result missed = Fetch();
  missed.ratio = 0.5;
  const std::vector<Result> results = {Fetch(), missed};
  const std::string text = ReportText("l2", AMachine(), results);
  EXPECT_THAT(text, HasSubstr("fetch dim=32 threads=2"));
  EXPECT_THAT(text, HasSubstr(">= 0.85 ok"));
  EXPECT_THAT(text, HasSubstr(">= 0.85 missed"));
}

TEST(ReportTest, WhatWasNotMeasuredSaysWhy) {
  Result skipped = SkippedResult("redis", "rows/s", "no redis-server");
  skipped.target = ">= 8";
  EXPECT_EQ(MeetsTarget(skipped), std::nullopt);
  const auto json = nlohmann::json::parse(ReportJson("serve", AMachine(), {&skipped, 1}));
  EXPECT_EQ(json["results"][0]["skipped"], "no redis-server");
  EXPECT_FALSE(json["results"][0].contains("figure"));
  EXPECT_THAT(ReportText("serve", AMachine(), {&skipped, 1}),
              HasSubstr("not measured: no redis-server"));
}

TEST(ReportTest, CountsAndDistributionsStandBesideTheFigure) {
  Result result = Fetch();
  result.measured = {{"refused", 3}, {"accepted", 4}};
  result.latency_points = {{0, 1}, {0.5, 2}};
  const auto json = nlohmann::json::parse(ReportJson("l2", AMachine(), {&result, 1}));
  EXPECT_EQ(json["results"][0]["measured"], (nlohmann::json{{"refused", 3}, {"accepted", 4}}));
  EXPECT_EQ(json["results"][0]["latency_us"], (nlohmann::json{{0.0, 1.0}, {0.5, 2.0}}));
  EXPECT_THAT(ReportText("l2", AMachine(), {&result, 1}), HasSubstr("refused 3, accepted 4"));
}

TEST(ReportTest, TargetsJudgeTheRatioOrWithoutABoundTheFigure) {
  Result result = MakeResult("r", "s", 1.2, std::nullopt);
  EXPECT_EQ(MeetsTarget(result), std::nullopt);
  result.target = "<= 1.3";
  EXPECT_EQ(MeetsTarget(result), true);
  result.figure = 1.4;
  EXPECT_EQ(MeetsTarget(result), false);
  result.bound = 2;
  EXPECT_EQ(MeetsTarget(result), std::nullopt);  // a bound, but no ratio to judge
  result.ratio = 0.7;
  EXPECT_EQ(MeetsTarget(result), true);
  for (const char* malformed : {"< 1.3", ">=1.3", ">= ", ">= 1.3x", "1.3"}) {
    result.target = malformed;
    EXPECT_EQ(MeetsTarget(result), std::nullopt) << malformed;
  }
}

TEST(ReportTest, KnowsThisMachine) {
  const Machine machine = ThisMachine(-1);
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_FALSE(machine.commit.empty());
  EXPECT_EQ(machine.date.size(), 20u);
}

}  // namespace
}  // namespace hps::bench
