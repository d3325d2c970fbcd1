#include "server/pages/update_pages.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace hps::server {
namespace {

using Json = nlohmann::ordered_json;

std::string TopicOf(const std::string& table) {
  std::string topic = "hps_et." + table;
  std::replace(topic.begin(), topic.end(), '/', '.');
  return topic;
}

std::vector<std::pair<const char*, const FreshnessHistogram*>> FreshnessByLevel(
    const UpdateStatistics& updates) {
  return {
      {"l1", &updates.l1_freshness}, {"l2", &updates.l2_freshness}, {"l3", &updates.l3_freshness}};
}

void AddStreamMetrics(const StreamStatistics& stream, MetricList& list) {
  list.Gauge("hps_update_up", "1 while the update stream can be read.").Add(stream.problem.empty());
  MetricFamilyBuilder records =
      list.Gauge("hps_update_lag_records", "Records of a partition that are not applied yet.");
  MetricFamilyBuilder seconds = list.Gauge(
      "hps_update_lag_seconds", "Age of the newest applied record of a partition that has others.");
  for (const StreamPartitionStatistics& partition : stream.partitions) {
    const MetricLabels labels = {{"topic", TopicOf(partition.table)},
                                 {"partition", std::to_string(partition.partition)}};
    records.Add(partition.lag_records, labels);
    seconds.Add(partition.lag_seconds, labels);
  }
  MetricFamilyBuilder parked = list.Counter(
      "hps_update_parked_total", "Messages that could not be applied and were set aside.");
  for (const auto& [reason, count] : stream.parked) parked.Add(count, {{"reason", reason}});
  list.Counter("hps_update_records_total", "Records read from the update stream.")
      .Add(stream.records);
  list.Counter("hps_update_bytes_total", "Bytes of the records read.").Add(stream.bytes);
  list.Counter("hps_update_expired_records_total",
               "Records that retention deleted before this node had read them.")
      .Add(stream.records_lost);
  MetricFamilyBuilder stale =
      list.Gauge("hps_update_table_stale", "1: the table lost records since its import.");
  for (const std::string& table : stream.stale_tables) stale.Add(true, {{"table", table}});
  std::map<std::string, uint64_t> paused = {{"disk_full", 0}, {"unavailable", 0}};
  for (const auto& [table, why] : stream.paused) ++paused[why];
  MetricFamilyBuilder pauses =
      list.Gauge("hps_update_paused", "Tables whose stream is paused, by reason.");
  for (const auto& [why, count] : paused) pauses.Add(count, {{"reason", why}});
  list.Gauge("hps_update_missing_topics", "Tables without a topic.")
      .Add(uint64_t{stream.missing_topics.size()});
  list.Gauge("hps_update_recovering",
             "1 while changes that the store had lost before its start are applied again.")
      .Add(stream.recovering);
  list.Counter("hps_recovery_refetched_records_total", "Records that were applied again.")
      .Add(stream.recovery_records);
  list.Gauge("hps_recovery_unverified",
             "1: it is unknown whether the store had lost changes before its start.")
      .Add(stream.recovery_unverified);
}

void AddSharedMetrics(const SharedGroupStatistics& shared, MetricList& list) {
  MetricFamilyBuilder owned =
      list.Gauge("hps_shared_partitions",
                 "Partitions of a topic whose changes this node writes into the shared level 2.");
  MetricFamilyBuilder lag = list.Gauge(
      "hps_shared_lag_records",
      "Records of an owned partition that level 3 of this node has and the shared level 2 lacks.");
  std::map<std::string, uint64_t> counts;
  for (const SharedPartitionStatistics& partition : shared.partitions) {
    ++counts[TopicOf(partition.table)];
    if (!partition.lag_records.has_value()) continue;
    lag.Add(*partition.lag_records, {{"topic", TopicOf(partition.table)},
                                     {"partition", std::to_string(partition.partition)}});
  }
  for (const auto& [topic, count] : counts) owned.Add(count, {{"topic", topic}});
  list.Counter("hps_shared_takeovers_total", "Partitions that this node has become the owner of.")
      .Add(shared.takeovers);
  list.Gauge("hps_shared_left_tables",
             "Tables that this node leaves to others, because its level 3 does not go on.")
      .Add(uint64_t{shared.left_tables.size()});
}

Json HistogramJson(const FreshnessHistogram& histogram) {
  return {{"sum_seconds", histogram.seconds_sum}, {"counts", histogram.counts}};
}

Json SharedJson(const SharedGroupStatistics& shared) {
  if (!shared.enabled) return nullptr;
  uint64_t lag_records = 0;
  for (const SharedPartitionStatistics& partition : shared.partitions)
    lag_records += partition.lag_records.value_or(0);
  return {{"partitions", shared.partitions.size()},
          {"lag_records", lag_records},
          {"takeovers", shared.takeovers},
          {"left_tables", shared.left_tables}};
}

}  // namespace

void AddUpdateMetrics(const Snapshot& snapshot, MetricList& list) {
  const UpdateStatistics& updates = snapshot.store.updates;
  list.Counter("hps_update_changes_total", "Changes of rows, by how they ended.")
      .Add(updates.changes, {{"result", "ok"}})
      .Add(updates.changes_failed, {{"result", "error"}});
  list.Counter("hps_update_rows_total", "Rows changed in level 3.")
      .Add(updates.rows_upserted, {{"change", "upsert"}})
      .Add(updates.rows_deleted, {{"change", "delete"}});
  list.Counter("hps_update_rows_refreshed_total", "Rows refreshed in level 1, on each device.")
      .Add(updates.rows_refreshed);
  if (!updates.stream.enabled) return;
  MetricFamilyBuilder freshness = list.Histogram(
      "hps_update_freshness_seconds", "From the publishing of a message until a level had it.");
  for (const auto& [level, histogram] : FreshnessByLevel(updates))
    freshness.Add(*histogram, {{"level", level}});
  AddStreamMetrics(updates.stream, list);
  if (updates.shared.enabled) AddSharedMetrics(updates.shared, list);
}

Json UpdatesJson(const Snapshot& snapshot) {
  const UpdateStatistics& updates = snapshot.store.updates;
  return {{"changes", updates.changes},
          {"changes_failed", updates.changes_failed},
          {"rows_upserted", updates.rows_upserted},
          {"rows_deleted", updates.rows_deleted},
          {"rows_refreshed", updates.rows_refreshed}};
}

Json StreamJson(const Snapshot& snapshot) {
  const StreamStatistics& stream = snapshot.store.updates.stream;
  if (!stream.enabled) return nullptr;
  Json json = {{"problem", stream.problem},
               {"recovering", stream.recovering},
               {"recovery_unverified", stream.recovery_unverified},
               {"recovery_records", stream.recovery_records},
               {"records", stream.records},
               {"bytes", stream.bytes},
               {"records_lost", stream.records_lost},
               {"parked", Json::object()},
               {"lag_records", 0},
               {"lag_seconds", 0.0},
               {"partitions", Json::array()},
               {"missing_topics", stream.missing_topics},
               {"stale_tables", stream.stale_tables},
               {"paused", Json::object()},
               {"shared", SharedJson(snapshot.store.updates.shared)},
               {"freshness_bucket_seconds", Json::array()},
               {"freshness", Json::object()}};
  for (const auto& [reason, count] : stream.parked) json["parked"][reason] = count;
  for (const auto& [table, why] : stream.paused) json["paused"][table] = why;
  uint64_t lag_records = 0;
  double lag_seconds = 0;
  for (const StreamPartitionStatistics& partition : stream.partitions) {
    lag_records += partition.lag_records;
    lag_seconds = std::max(lag_seconds, partition.lag_seconds);
    json["partitions"].push_back({{"table", partition.table},
                                  {"partition", partition.partition},
                                  {"position", partition.position},
                                  {"lag_records", partition.lag_records},
                                  {"lag_seconds", partition.lag_seconds}});
  }
  json["lag_records"] = lag_records;
  json["lag_seconds"] = lag_seconds;
  for (size_t i = 0; i + 1 < FreshnessHistogram::kBuckets; ++i)
    json["freshness_bucket_seconds"].push_back(FreshnessHistogram::BoundSeconds(i));
  for (const auto& [level, histogram] : FreshnessByLevel(snapshot.store.updates))
    json["freshness"][level] = HistogramJson(*histogram);
  return json;
}

}  // namespace hps::server
