#include "bench/report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "bench/test_well_formed.h"

namespace hps::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report AReport() {
  Report report{.scenario = "serve",
                .machine = {.cpu = "cpu", .gpu = "", .commit = "abc", .date = "2026-01-02"},
                .results = {}};
  for (const double load : {0.5, 1.0, 10.0}) {
    Result result = MakeResult("open_loop", "requests/s", 90 * load, 100);
    result.params = {{"load", absl::StrCat(load)}, {"protocol", "http"}};
    result.target = ">= 0.9";
    result.p50 = 1;
    result.p99 = 2;
    result.measured = {{"offered", 100}, {"in_time", 90}, {"refused", 10}};
    result.latency_points = {{0, 1}, {0.9, 2}, {0.99, 3}, {1, 4}};
    report.results.push_back(result);
  }
  report.results.push_back(SkippedResult("redis_mget", "rows/s", "no redis-server"));
  return report;
}

TEST(ReportHtmlTest, IsOneWellFormedFileThatLoadsNothing) {
  const std::string page = ReportHtml(AReport());
  EXPECT_EQ(WhatIsMalformed(page), "");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
  for (const char* loads : {"://", "<script", "<link", "url(", "@import", " src="})
    EXPECT_THAT(page, Not(HasSubstr(loads)));
}

TEST(ReportHtmlTest, HasEveryFigureWithItsVerdict) {
  const std::string page = ReportHtml(AReport());
  for (const char* part : {"hps bench serve", "abc", "open_loop", "load 10, protocol http",
                           "\u2713 met", "\u2717 missed", "not measured: no redis-server",
                           "offered 100", "<figure", "<b>2</b>", "prefers-color-scheme: dark"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

TEST(ReportHtmlTest, WhatIsMeasuredCanNotBreakThePage) {
  Report report = AReport();
  const std::string hostile = "<script>alert(\"x\")</script>&amp;'\n\x02";
  report.scenario = report.machine.cpu = report.machine.gpu = hostile;
  for (Result& result : report.results) {
    result.name = result.unit = hostile;
    result.params["protocol"] = hostile;
    result.params[hostile] = "x";
    result.measured.emplace_back(hostile, 1);
  }
  report.results.back().skipped = hostile;
  const std::string page = ReportHtml(report);
  EXPECT_EQ(WhatIsMalformed(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(ReportHtmlTest, AReportOfNothingIsAPage) {
  const std::string page = ReportHtml({});
  EXPECT_EQ(WhatIsMalformed(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<figure")));
}

}  // namespace
}  // namespace hps::bench
