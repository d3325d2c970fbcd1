#include "server/pages/overview.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/pages/test_pages_world.h"

namespace hps::server {
namespace {

using Json = nlohmann::json;

Json Overview(const Snapshot& snapshot) { return Json::parse(OverviewJson(snapshot)); }

TEST(OverviewTest, HasWhatTheDashboardShows) {
  const Config config;
  const Json json = Overview(FullSnapshot(&config));
  EXPECT_EQ(json["version"], kOverviewVersion);
  EXPECT_EQ(json["server"]["state"], "ready");
  EXPECT_EQ(json["server"]["requests"], Json({{"http", 11}, {"grpc", 12}}));
  EXPECT_EQ(json["server"]["refused"]["capacity"], 3);
  EXPECT_EQ(json["latency_bucket_seconds"].size() + 1,
            json["models"][0]["stages"]["total"]["counts"].size());
  EXPECT_EQ(json["models"][0]["stages"]["total"]["counts"][9], 10);
  EXPECT_EQ(json["models"][0]["batch_sizes"][1], Json({2, 3}));
  EXPECT_EQ(json["models"][1]["state"], "unavailable");
  EXPECT_EQ(json["models"][1]["reason"], "no \"tables\"");
  EXPECT_EQ(json["models"][1]["requests"], 0);
  ASSERT_EQ(json["levels"].size(), 3u);
  EXPECT_EQ(json["levels"][0]["name"], "l1");
  EXPECT_EQ(json["levels"][1]["bytes_max"], 8000);
  EXPECT_EQ(json["levels"][2]["rows"], 1000);
  EXPECT_EQ(json["tables"][0]["keys"]["hit_l2"], 3);
  EXPECT_EQ(json["tables"][0]["l2"]["evictions"], 8);
  EXPECT_EQ(json["tables"][0]["devices"][0]["hits"], 70);
  EXPECT_TRUE(json["stream"].is_null());
}

TEST(OverviewTest, ALevelOnRedisHasServersAndNoSize) {
  Config config;
  config.l2.kind = L2Kind::kRedis;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.l2_remote.nodes = {{.address = "a:1", .bypassed = true, .failures = 3}};
  snapshot.store.l2_remote.ask = 2;
  const Json level = Overview(snapshot)["levels"][1];
  EXPECT_EQ(level["kind"], "redis");
  EXPECT_EQ(level["up"], false);
  EXPECT_FALSE(level.contains("rows"));
  EXPECT_FALSE(level.contains("bytes_max"));
  EXPECT_EQ(level["nodes"][0], Json({{"address", "a:1"}, {"bypassed", true}, {"failures", 3}}));
  EXPECT_EQ(level["redirects"]["ask"], 2);
  EXPECT_FALSE(Overview(snapshot)["tables"][0]["l2"].contains("rows"));
}

TEST(OverviewTest, ALevelInMemoryBeforeRedisHasServersAndASize) {
  Config config;
  config.l2.kind = L2Kind::kMemoryRedis;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.l2_remote.nodes = {{.address = "a:1", .bypassed = false, .failures = 3}};
  const Json level = Overview(snapshot)["levels"][1];
  EXPECT_EQ(level["kind"], "memory+redis");
  EXPECT_TRUE(level.contains("rows"));
  EXPECT_TRUE(level.contains("bytes_max"));
  EXPECT_EQ(level["nodes"][0]["address"], "a:1");
  EXPECT_TRUE(Overview(snapshot)["tables"][0]["l2"].contains("rows"));
}

TEST(OverviewTest, TellsLoadingFromDraining) {
  const Config config;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.server.ready = false;
  EXPECT_EQ(Overview(snapshot)["server"]["state"], "loading");
  snapshot.server.draining = true;
  EXPECT_EQ(Overview(snapshot)["server"]["state"], "draining");
}

TEST(OverviewTest, ATableThatNoModelServesHasNoCounts) {
  const Config config;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.tables.clear();
  const Json table = Overview(snapshot)["tables"][0];
  EXPECT_EQ(table["served"], false);
  EXPECT_FALSE(table.contains("keys"));
}

}  // namespace
}  // namespace hps::server
