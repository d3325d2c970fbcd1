#include "cli/top/top_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace hps::cli {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// As the server writes it, cut to what `hps top` reads.
Json Overview() {
  return Json::parse(R"({
    "version": 1, "unix_ms": 10000,
    "server": {"hps": "0.1.0", "state": "ready", "start_unix_ms": 4000,
               "requests": {"http": 100, "grpc": 50}, "connections_http": 3,
               "refused": {"capacity": 1, "draining": 0}, "bad_requests": {"syntax": 2},
               "deadlines_exceeded": {"queue": 0}},
    "process": {"cpu_seconds": 1.0, "resident_bytes": 1048576},
    "latency_bucket_seconds": [0.001, 0.002, 0.004],
    "models": [{"name": "m", "version": "1", "state": "ready", "requests": 10,
                "requests_failed": 0, "keys": 100, "queue_depth": 4,
                "stages": {"total": {"sum_seconds": 0, "counts": [5, 5, 0, 0]}}}],
    "levels": [{"name": "l2", "up": true, "rows": 10, "bytes": 20, "bytes_max": 30,
                "evictions": 4, "errors": 0},
               {"name": "l3", "up": false, "rows": 100, "bytes": 200, "errors": 1}],
    "tables": [{"name": "m/a", "rows": 7, "keys": {"absent": 0, "hit_l1": 0, "hit_l2": 10,
                "hit_l3": 10, "default_pending": 0, "default_degraded": 0}},
               {"name": "m/b", "rows": 8, "keys": {"absent": 0, "hit_l1": 0, "hit_l2": 0,
                "hit_l3": 0, "default_pending": 0, "default_degraded": 0}},
               {"name": "x/c", "rows": 9}]})");
}

// Two seconds later.
Json LaterOverview() {
  Json later = Overview();
  later["unix_ms"] = 12000;
  later["server"]["requests"] = {{"http", 300}, {"grpc", 54}};
  later["server"]["refused"]["draining"] = 6;
  later["process"]["cpu_seconds"] = 4.0;
  later["models"][0]["requests"] = 110;
  later["models"][0]["keys"] = 1100;
  later["models"][0]["stages"]["total"]["counts"] = {5, 95, 10, 0};
  later["levels"][0]["evictions"] = 24;
  later["tables"][0]["keys"]["hit_l2"] = 40;
  later["tables"][1]["keys"] = {{"absent", 10}, {"hit_l1", 40},          {"hit_l2", 20},
                                {"hit_l3", 0},  {"default_pending", 10}, {"default_degraded", 20}};
  return later;
}

TopFigures Figures() {
  const auto figures = ComputeTopFigures(Overview().dump(), LaterOverview().dump());
  EXPECT_TRUE(figures.ok()) << figures.status();
  return figures.value_or(TopFigures());
}

TEST(TopFiguresTest, SumsBecomeRates) {
  const TopFigures figures = Figures();
  EXPECT_EQ(figures["state"], "ready");
  EXPECT_DOUBLE_EQ(figures["uptime_seconds"], 8);
  EXPECT_DOUBLE_EQ(figures["http_per_second"], 100);
  EXPECT_DOUBLE_EQ(figures["grpc_per_second"], 2);
  EXPECT_DOUBLE_EQ(figures["refused_per_second"], 3);
  EXPECT_DOUBLE_EQ(figures["cpu_cores"], 1.5);
  EXPECT_DOUBLE_EQ(figures["keys_per_second"], 65);
  ASSERT_EQ(figures["models"].size(), 1u);
  EXPECT_DOUBLE_EQ(figures["models"][0]["requests_per_second"], 50);
  EXPECT_EQ(figures["models"][0]["queue_depth"], 4u);
  EXPECT_DOUBLE_EQ(figures["levels"][0]["evictions_per_second"], 10);
  EXPECT_EQ(figures["levels"][1]["up"], false);
}

TEST(TopFiguresTest, TheUpdateStreamIsThereIfTheServerReadsOne) {
  EXPECT_FALSE(Figures().contains("stream"));
  Json before = Overview();
  Json now = LaterOverview();
  before["updates"] = {{"rows_upserted", 10}, {"rows_deleted", 0}};
  now["updates"] = {{"rows_upserted", 50}, {"rows_deleted", 2}};
  now["stream"] = {{"problem", "no broker answers"},
                   {"lag_records", 7},
                   {"lag_seconds", 0.5},
                   {"parked", {{"checksum", 1}, {"truncated", 2}}},
                   {"freshness_bucket_seconds", {1.0, 2.0}},
                   {"freshness", {{"l3", {{"counts", {0, 100, 0}}}}}}};
  const auto figures = ComputeTopFigures(before.dump(), now.dump());
  ASSERT_TRUE(figures.ok()) << figures.status();
  ASSERT_TRUE(figures->contains("stream"));
  const Json stream = figures->at("stream");
  EXPECT_DOUBLE_EQ(stream["rows_per_second"], 21);
  EXPECT_EQ(stream["lag_records"], 7u);
  EXPECT_EQ(stream["parked"], 3u);
  EXPECT_NEAR(stream["l3_freshness_p99_seconds"], 1.99, 1e-9);
  const std::string text = TopText(*figures, 120, 0);
  EXPECT_NE(text.find("lag 7 records"), std::string::npos) << text;
  EXPECT_NE(text.find("NOT READABLE: no broker answers"), std::string::npos) << text;
}

TEST(TopFiguresTest, ALevelOnRedisHasServersAndNoSize) {
  Json now = LaterOverview();
  now["levels"][0] = {{"name", "l2"},
                      {"up", false},
                      {"errors", 3},
                      {"insertions", 1},
                      {"nodes",
                       {{{"address", "a:1"}, {"bypassed", true}, {"failures", 3}},
                        {{"address", "b:2"}, {"bypassed", false}, {"failures", 0}}}}};
  const auto figures = ComputeTopFigures(Overview().dump(), now.dump());
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_FALSE(figures->at("levels")[0].contains("rows"));
  ASSERT_EQ(figures->at("levels")[0]["nodes"].size(), 2u);
  const std::string text = TopText(*figures, 120, 0);
  EXPECT_NE(text.find("a:1  BYPASSED"), std::string::npos) << text;
  EXPECT_NE(text.find("b:2  answers"), std::string::npos) << text;
}

// Of the 100 answers in between, 90 took 1 to 2 ms and 10 took 2 to 4 ms.
TEST(TopFiguresTest, PercentilesAreOfTheTimeInBetween) {
  const Json latency = Figures()["latency_seconds"];
  EXPECT_NEAR(latency["p50"], 0.001 + 0.001 * 50 / 90, 1e-9);
  EXPECT_NEAR(latency["p95"], 0.002 + 0.002 * 5 / 10, 1e-9);
  const auto quiet = ComputeTopFigures(Overview().dump(), Overview().dump());
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  EXPECT_EQ(quiet->at("latency_seconds"), Json::object());
  EXPECT_FALSE(quiet->contains("answered_by"));
}

TEST(TopFiguresTest, TablesComeByHowMuchTheyAreAsked) {
  const Json tables = Figures()["tables"];
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0]["name"], "m/b");
  EXPECT_DOUBLE_EQ(tables[0]["keys_per_second"], 50);
  ASSERT_TRUE(tables[0].contains("answered_by"));
  EXPECT_DOUBLE_EQ(tables[0]["answered_by"]["l1"], 0.4);
  EXPECT_DOUBLE_EQ(tables[0]["answered_by"]["default"], 0.3);
  EXPECT_FALSE(tables[2].contains("answered_by"));
}

TEST(TopFiguresTest, RefusesWhatIsNoOverview) {
  const std::string good = Overview().dump();
  for (const char* text : {"", "{}", "[1]", "{\"version\":1}", "<html>"}) {
    EXPECT_EQ(ComputeTopFigures(good, text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  Json newer = Overview();
  newer["version"] = 2;
  EXPECT_THAT(std::string(ComputeTopFigures(good, newer.dump()).status().message()),
              HasSubstr("version 2"));
  Json restarted = LaterOverview();
  restarted["server"]["start_unix_ms"] = 11000;
  EXPECT_EQ(ComputeTopFigures(good, restarted.dump()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(TopTextTest, FitsTheTerminal) {
  const std::string text = TopText(Figures(), 60, 8);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.size(), text.find('\n', begin));
    EXPECT_LE(end - begin, 60u);
    begin = end + 1;
  }
}

TEST(TopTextTest, ShowsServerLevelsModelsAndTables) {
  const std::string text = TopText(Figures(), 200, 0);
  for (const char* part : {"ready", "HTTP 100/s", "p50 1.56 ms", "l2     up", "l3     DOWN", "m/b",
                           "level 1 30.8 %"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, HasSubstr("111122addd"));
  EXPECT_THAT(text, HasSubstr(".........."));
}

}  // namespace
}  // namespace hps::cli
