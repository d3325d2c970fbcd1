#include "bench/report_reader.h"

#include <gtest/gtest.h>

namespace hps::bench {
namespace {

TEST(ReportReaderTest, ReadsWhatWasWritten) {
  Result full = MakeResult("fetch", "keys/s", 90, 100);
  full.params = {{"dim", "32"}};
  full.target = ">= 0.85";
  full.p50 = 1.5;
  full.p99 = 2.5;
  full.runs = 7;
  full.measured = {{"refused", 3}, {"accepted", 4}};
  full.latency_points = {{0, 1}, {0.5, 1.5}};
  const std::vector<Result> results = {full, SkippedResult("redis", "rows/s", "no <server>"),
                                       MakeResult("memory", "bytes", 12, std::nullopt)};
  const Machine machine{.cpu = "a cpu", .gpu = "a gpu", .commit = "abc", .date = "today"};
  const std::string written = ReportJson("l2", machine, results);
  const absl::StatusOr<Report> read = ReadReport(written);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ReportJson(read->scenario, read->machine, read->results), written);
  EXPECT_EQ(read->results[1].skipped, "no <server>");
}

TEST(ReportReaderTest, LeavesOutWhatIsOfAnotherKind) {
  const auto read = ReadReport(R"({"results": [{"name": "a", "figure": 1, "p50": "x",
      "params": {"n": 1, "m": "2"}, "measured": {"k": "v"}, "latency_us": [1, [2], [0, 3]]}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  const Result& result = read->results.front();
  EXPECT_EQ(result.p50, std::nullopt);
  EXPECT_EQ(result.params, (std::map<std::string, std::string>{{"m", "2"}}));
  EXPECT_TRUE(result.measured.empty());
  EXPECT_EQ(result.latency_points.size(), 1u);
}

TEST(ReportReaderTest, RefusesWhatIsNoReport) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"results": 1})", R"({"results": [1]})", R"({"results": [{}]})",
        R"({"results": [{"name": "x"}]})", R"({"results": [{"figure": 1}]})"}) {
    EXPECT_EQ(ReadReport(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace hps::bench
