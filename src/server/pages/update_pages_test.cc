#include "server/pages/update_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hps::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Snapshot WithStream() {
  Snapshot snapshot;
  UpdateStatistics& updates = snapshot.store.updates;
  updates.changes = 5;
  updates.rows_upserted = 7;
  updates.l3_freshness.counts[2] = 3;
  updates.l3_freshness.seconds_sum = 0.5;
  StreamStatistics& stream = updates.stream;
  stream.enabled = true;
  stream.problem = "no broker answers";
  stream.records = 4;
  stream.records_lost = 2;
  stream.parked = {{"checksum", 1}};
  stream.partitions = {
      {.table = "m/t", .partition = 0, .position = 9, .lag_records = 3, .lag_seconds = 1.5},
      {.table = "m/t", .partition = 1, .position = 4, .lag_records = 2, .lag_seconds = 0.5}};
  stream.stale_tables = {"m/t"};
  stream.paused = {{"m/t", "disk_full"}};
  return snapshot;
}

TEST(UpdatePagesTest, TheMetricsSayHowFarTheStreamIs) {
  MetricList list;
  AddUpdateMetrics(WithStream(), list);
  const std::string text = list.Text();
  for (const char* line :
       {"hps_update_changes_total{result=\"ok\"} 5", "hps_update_up 0",
        "hps_update_lag_records{topic=\"hps_et.m.t\",partition=\"0\"} 3",
        "hps_update_lag_seconds{topic=\"hps_et.m.t\",partition=\"1\"} 0.5",
        "hps_update_parked_total{reason=\"checksum\"} 1", "hps_update_expired_records_total 2",
        "hps_update_table_stale{table=\"m/t\"} 1", "hps_update_paused{reason=\"disk_full\"} 1",
        "hps_update_freshness_seconds_bucket{level=\"l3\",le=\"0.004\"} 3",
        "hps_update_freshness_seconds_sum{level=\"l3\"} 0.5"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(UpdatePagesTest, TheSharedGroup) {
  Snapshot snapshot = WithStream();
  MetricList without;
  AddUpdateMetrics(snapshot, without);
  EXPECT_THAT(without.Text(), Not(HasSubstr("hps_shared_")));
  EXPECT_TRUE(StreamJson(snapshot)["shared"].is_null());
  SharedGroupStatistics& shared = snapshot.store.updates.shared;
  shared.enabled = true;
  shared.partitions = {{.table = "m/t", .partition = 0, .lag_records = 3},
                       {.table = "m/t", .partition = 2, .lag_records = 4}};
  shared.takeovers = 5;
  shared.left_tables = {"m/u"};
  MetricList list;
  AddUpdateMetrics(snapshot, list);
  const std::string text = list.Text();
  for (const char* line : {"hps_shared_partitions{topic=\"hps_et.m.t\"} 2",
                           "hps_shared_lag_records{topic=\"hps_et.m.t\",partition=\"2\"} 4",
                           "hps_shared_takeovers_total 5", "hps_shared_left_tables 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const nlohmann::ordered_json json = StreamJson(snapshot)["shared"];
  EXPECT_EQ(json["partitions"], 2);
  EXPECT_EQ(json["lag_records"], 7);
  EXPECT_EQ(json["left_tables"][0], "m/u");
}

TEST(UpdatePagesTest, WithoutAStreamThereAreChangesOnly) {
  Snapshot snapshot;
  MetricList list;
  AddUpdateMetrics(snapshot, list);
  EXPECT_THAT(list.Text(), HasSubstr("hps_update_rows_total"));
  EXPECT_THAT(list.Text(), Not(HasSubstr("hps_update_up")));
  EXPECT_TRUE(StreamJson(snapshot).is_null());
  EXPECT_EQ(UpdatesJson(snapshot)["changes"], 0);
}

TEST(UpdatePagesTest, TheOverviewAddsThePartitionsUp) {
  const nlohmann::ordered_json json = StreamJson(WithStream());
  EXPECT_EQ(json["lag_records"], 5);
  EXPECT_EQ(json["lag_seconds"], 1.5);
  EXPECT_EQ(json["partitions"].size(), 2u);
  EXPECT_EQ(json["paused"]["m/t"], "disk_full");
  EXPECT_EQ(json["freshness_bucket_seconds"].size(), json["freshness"]["l3"]["counts"].size() - 1);
}

}  // namespace
}  // namespace hps::server
