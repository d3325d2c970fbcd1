#include "bench/report_plots.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "bench/report.h"

namespace hps::bench {
namespace {

Result At(const std::string& protocol, double load, double figure) {
  Result result = MakeResult("open_loop", "requests/s", figure, 100);
  result.params = {{"protocol", protocol},
                   {"load", absl::StrCat(load)},
                   {"probe_us", absl::StrCat(figure)},  // measured: tells nothing apart
                   {"timeout_us", "50000"}};
  result.p50 = 10 * load;
  result.p99 = 20 * load;
  return result;
}

TEST(ReportPlotsTest, LinesRunOverTheNumberThatDiffersMost) {
  std::vector<Result> results;
  for (const char* protocol : {"http", "grpc"}) {
    for (const double load : {2.0, 0.5, 1.0}) results.push_back(At(protocol, load, 50 * load));
  }
  const ReportPlots plots = PlotsOf(results);
  ASSERT_EQ(plots.plots.size(), 2u);
  const Plot& figures = plots.plots[0];
  EXPECT_EQ(figures.x_label, "load");
  EXPECT_EQ(figures.y_label, "requests/s");
  ASSERT_EQ(figures.lines.size(), 4u);
  EXPECT_EQ(figures.lines[0].name, "http, measured");
  EXPECT_EQ(figures.lines[0].points,
            (std::vector<std::pair<double, double>>{{0.5, 25}, {1, 50}, {2, 100}}));
  EXPECT_EQ(figures.lines[1].name, "http, bound");
  EXPECT_TRUE(figures.lines[1].is_dashed);
  EXPECT_EQ(figures.lines[2].name, "grpc, measured");
  const Plot& latencies = plots.plots[1];
  ASSERT_EQ(latencies.lines.size(), 4u);
  EXPECT_EQ(latencies.lines[1].name, "http, p99");
  EXPECT_EQ(latencies.lines[1].points.back(), (std::pair<double, double>(2, 40)));
  EXPECT_TRUE(plots.bars.empty());
  EXPECT_TRUE(plots.margins.margins.empty());
}

TEST(ReportPlotsTest, FewPointsAndSkippedResultsAreNoPlot) {
  std::vector<Result> results = {At("http", 1, 1), At("http", 2, 2)};
  results.push_back(At("http", 3, 3));
  results.back().skipped = "why";
  EXPECT_TRUE(PlotsOf(results).plots.empty());
  EXPECT_TRUE(PlotsOf({}).plots.empty());
}

TEST(ReportPlotsTest, DistributionsAndOutcomesAreBySeries) {
  std::vector<Result> results;
  for (const double load : {1.0, 2.0, 10.0}) {
    results.push_back(At("http", load, 50));
    results.back().latency_points = {{0, 1}, {0.5, 2}, {0.99, 3}};
    results.back().measured = {{"offered", 10}, {"in_time", 5},    {"refused", 3},
                               {"failed", 1},   {"unanswered", 1}, {"connections", 7}};
  }
  const ReportPlots plots = PlotsOf(results);
  ASSERT_EQ(plots.plots.size(), 3u);
  EXPECT_EQ(plots.plots[2].x, Axis::kNines);
  ASSERT_EQ(plots.plots[2].lines.size(), 3u);
  EXPECT_EQ(plots.plots[2].lines[2].name, "load 10");
  ASSERT_EQ(plots.bars.size(), 1u);
  ASSERT_EQ(plots.bars[0].bars.size(), 3u);
  double sum = 0;
  for (const double part : plots.bars[0].bars[0].parts) sum += part;
  EXPECT_EQ(sum, 10);
}

TEST(ReportPlotsTest, MarginsAreOfJudgedTargetsWhicheverWayTheyJudge) {
  Result more = MakeResult("more", "x", 150, 100);
  more.target = ">= 1.2";
  Result less = MakeResult("less", "x", 2, std::nullopt);
  less.target = "<= 8";
  Result nothing = MakeResult("nothing", "x", 0, std::nullopt);
  nothing.target = "<= 8";
  Result none = MakeResult("none", "x", 0, 1);
  none.target = ">= 0.5";
  Result free = MakeResult("free", "x", 1, 1);
  Result skipped = SkippedResult("skipped", "x", "why");
  skipped.target = ">= 1";
  const ReportPlots plots = PlotsOf(std::vector<Result>{more, less, nothing, none, free, skipped});
  const auto& margins = plots.margins.margins;
  ASSERT_EQ(margins.size(), 4u);
  EXPECT_DOUBLE_EQ(margins[0].margin, 1.25);
  EXPECT_DOUBLE_EQ(margins[1].margin, 4);
  EXPECT_EQ(margins[2].margin, HUGE_VAL);
  EXPECT_EQ(margins[3].margin, 0);
}

}  // namespace
}  // namespace hps::bench
