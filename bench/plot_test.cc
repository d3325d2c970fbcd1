#include "bench/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

#include "bench/test_well_formed.h"

namespace hps::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// How many non-overlapping times `part` is in `text`.
size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

Plot APlot() {
  return {.title = "a <title>",
          .about = "about \"it\"",
          .x_label = "load & more",
          .y_label = "requests/s",
          .lines = {
              {.name = "<one>", .points = {{1, 10}, {2, 30}, {4, 20}}},
              {.name = "bound", .points = {{1, 40}, {4, 40}}, .is_dashed = true, .mark_every = 0}}};
}

TEST(PlotTest, DrawsEachLineWithMarksTitleAndLegend) {
  const std::string figure = PlotFigure(APlot(), 7);
  EXPECT_EQ(WhatIsMalformed(figure), "");
  EXPECT_THAT(figure, HasSubstr("a &lt;title&gt;"));
  EXPECT_THAT(figure, HasSubstr("aria-labelledby=\"plot7\""));
  EXPECT_THAT(figure, HasSubstr("<title>&lt;one&gt;: 30 at 2</title>"));
  EXPECT_EQ(Count(figure, "<title>"), 3u);  // a mark for each point, none on the bound
  EXPECT_EQ(Count(figure, "<li>"), 2u);
  EXPECT_EQ(Count(figure, "class=\"s0 dashed\""), 1u);
}

TEST(PlotTest, ShowsNothingForNothing) {
  Plot plot = APlot();
  plot.y = Axis::kLog;
  for (PlotLine& line : plot.lines) line.points = {{1, 0}, {2, -1}, {3, NAN}};
  EXPECT_EQ(PlotFigure(plot, 0), "");
  EXPECT_EQ(PlotFigure({}, 0), "");
  EXPECT_EQ(BarFigure({}, 0), "");
  EXPECT_EQ(MarginFigure({}, 0), "");
}

TEST(PlotTest, AnAxisOfNinesEndsBeforeTheLongest) {
  Plot plot = APlot();
  plot.x = Axis::kNines;
  plot.y = Axis::kLog;
  plot.lines = {
      {.name = "p", .points = {{0, 10}, {0.5, 20}, {0.9, 30}, {0.9999, 4000}, {1, 5000}}}};
  const std::string figure = PlotFigure(plot, 0);
  for (const char* tick : {">0 %<", ">90 %<", ">99 %<", ">99.9 %<", ">99.99 %<", ">10<", ">100<"})
    EXPECT_THAT(figure, HasSubstr(tick));
  EXPECT_EQ(Count(figure, "<title>"), 4u);
}

// Whatever is measured, the picture is well-formed and stays within its frame.
TEST(PlotTest, RandomPointsStayInThePicture) {
  const std::regex coordinates("[ML](-?[0-9.]+) (-?[0-9.]+)");
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> wide(0, 8);
    Plot plot = APlot();
    plot.x = random() % 2 == 0 ? Axis::kLinear : Axis::kLog;
    plot.y = random() % 2 == 0 ? Axis::kLinear : Axis::kLog;
    const double sign = plot.y == Axis::kLinear && random() % 4 == 0 ? -1 : 1;
    plot.lines = {{.name = "random", .points = {}}};
    for (uint64_t i = 0; i <= random() % 5; ++i)
      plot.lines[0].points.emplace_back(wide(random), sign * wide(random));
    const std::string figure = PlotFigure(plot, 0);
    ASSERT_EQ(WhatIsMalformed(figure), "");
    ASSERT_THAT(figure, Not(HasSubstr("nan")));
    ASSERT_THAT(figure, Not(HasSubstr("inf")));
    ASSERT_LE(Count(figure, "text-anchor=\"middle\""), 25u);
    const std::string drawn = figure.substr(0, figure.find("<ul"));
    for (std::sregex_iterator at(drawn.begin(), drawn.end(), coordinates), end; at != end; ++at) {
      const double x = std::stod((*at)[1]);
      const double y = std::stod((*at)[2]);
      ASSERT_TRUE(x >= 60 && x <= 624) << x;
      ASSERT_TRUE(y >= 10 && y <= 256) << y;
    }
  }
}

TEST(PlotTest, BarsAreSharesOfTheirWhole) {
  const BarPlot plot{.title = "t",
                     .about = "a",
                     .part_names = {"in time", "refused <1>"},
                     .bars = {{.name = "load 1", .parts = {3, 1}},
                              {.name = "load 2", .parts = {0, 5}},
                              {.name = "nothing", .parts = {0, 0}}}};
  const std::string figure = BarFigure(plot, 1);
  EXPECT_EQ(WhatIsMalformed(figure), "");
  EXPECT_THAT(figure, HasSubstr("load 1, in time: 3 (75 %)"));
  EXPECT_THAT(figure, HasSubstr("load 2, refused &lt;1&gt;: 5 (100 %)"));
  EXPECT_EQ(Count(figure, "<rect"), 3u);
}

TEST(PlotTest, MarginsTellMetFromMissed) {
  const MarginPlot plot{.title = "t",
                        .about = "a",
                        .margins = {{.name = "far & met", .margin = HUGE_VAL, .text = "0"},
                                    {.name = "met", .margin = 1, .text = "1"},
                                    {.name = "missed", .margin = 0, .text = "5"}}};
  const std::string figure = MarginFigure(plot, 1);
  EXPECT_EQ(WhatIsMalformed(figure), "");
  EXPECT_EQ(Count(figure, "class=\"good\""), 2u);
  EXPECT_EQ(Count(figure, "class=\"bad\""), 1u);
  EXPECT_THAT(figure, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace hps::bench
