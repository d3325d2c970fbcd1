#include "server/pages/overview.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "server/pages/problems.h"
#include "server/pages/update_pages.h"

namespace hps::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kShownStates = {"ready", "loading", "unavailable"};

Json ByWord(const std::vector<std::pair<std::string, uint64_t>>& counts) {
  Json json = Json::object();
  for (const auto& [word, count] : counts) json[word] = count;
  return json;
}

const char* StateOf(const ServerStatistics& server) {
  if (server.draining) return "draining";
  return server.ready ? "ready" : "loading";
}

Json ServerJson(const Snapshot& snapshot) {
  const ServerStatistics& server = snapshot.server;
  const ServerConfig& limits = snapshot.config->server;
  return {{"hps", HPS_VERSION},
          {"state", StateOf(server)},
          {"start_unix_ms", server.start_unix_ms},
          {"ready_after_seconds", server.ready_after_seconds},
          {"requests", {{"http", server.http.requests}, {"grpc", server.grpc.requests}}},
          {"connections_http", server.http.connections},
          {"connections_grpc", server.grpc.connections},
          {"connections_max", limits.connections_max},
          {"keys_in_flight", server.keys_in_flight},
          {"keys_in_flight_max", limits.keys_in_flight_max},
          {"bytes_in_flight", server.bytes_in_flight},
          {"bytes_in_flight_max", limits.bytes_in_flight_max},
          {"refused", ByWord(server.refused)},
          {"bad_requests", ByWord(server.bad_requests)},
          {"deadlines_exceeded", ByWord(server.deadlines_exceeded)},
          {"auth_failures", server.auth_failures}};
}

Json ProcessJson(const Snapshot& snapshot) {
  const ProcessStatistics& process = snapshot.process;
  return {{"cpu_seconds", process.cpu_seconds},
          {"resident_bytes", process.resident_bytes},
          {"open_files", process.open_files},
          {"open_files_max", process.open_files_max},
          {"threads", process.threads},
          {"log_warnings", snapshot.log.written[static_cast<size_t>(LogLevel::kWarning)]},
          {"log_errors", snapshot.log.written[static_cast<size_t>(LogLevel::kError)]}};
}

Json HistogramJson(const LatencyHistogram& histogram) {
  return {{"sum_seconds", static_cast<double>(histogram.sum_ns) * 1e-9},
          {"counts", histogram.counts}};
}

Json ModelJson(const ModelIndexEntry& model) {
  return {{"name", model.name},
          {"version", model.version},
          {"state", kShownStates[static_cast<size_t>(model.state)]},
          {"reason", model.reason},
          {"requests", 0},
          {"requests_failed", 0},
          {"keys", 0},
          {"batches", 0},
          {"queue_depth", 0},
          {"last_request_unix_ms", 0},
          {"stages", Json::object()},
          {"batch_sizes", Json::array()}};
}

void AddModelCounts(const ModelServerStatistics& counts, Json* model) {
  Json& json = *model;
  json["requests"] = counts.requests;
  json["requests_failed"] = counts.requests_failed;
  json["keys"] = counts.keys;
  json["batches"] = counts.batches;
  json["queue_depth"] = counts.queue_depth;
  json["last_request_unix_ms"] = counts.last_request_unix_ms;
  for (size_t stage = 0; stage < kStageCount; ++stage) {
    json["stages"][kStageNames[stage]] = HistogramJson(counts.stages[stage]);
  }
  for (const auto& [calls, lookups] : counts.batch_sizes) {
    json["batch_sizes"].push_back({calls, lookups});
  }
}

Json ModelsJson(const Snapshot& snapshot) {
  Json models = Json::array();
  for (const ModelIndexEntry& model : snapshot.models) {
    Json json = ModelJson(model);
    for (const ModelServerStatistics& counts : snapshot.server.models) {
      if (counts.model == model.name) AddModelCounts(counts, &json);
    }
    models.push_back(std::move(json));
  }
  return models;
}

Json LevelJson(const LevelStatistics& level) {
  return {{"rows", level.entries},          {"absent_rows", level.absent_entries},
          {"bytes", level.bytes_used},      {"bytes_max", level.bytes_max},
          {"insertions", level.insertions}, {"updates", level.updates},
          {"evictions", level.evictions},   {"fenced", level.refused},
          {"dropped", level.dropped},       {"not_admitted", level.not_admitted},
          {"errors", level.errors}};
}

Json TotalsJson(const char* name, const char* kind, bool up, const LevelTotals& totals) {
  Json json = {{"name", name}, {"kind", kind}, {"up", up}};
  json.update(LevelJson(totals.sum));
  json["bytes_max"] = totals.bytes_max;
  return json;
}

// What Redis holds and evicts is not known: these figures are left out.
Json WithoutUnknown(Json level) {
  for (const char* unknown : {"rows", "absent_rows", "bytes", "bytes_max", "evictions"})
    level.erase(unknown);
  return level;
}

// With a part in memory, the figures are those of that part.
Json RedisJson(const Snapshot& snapshot, const LevelTotals& totals) {
  const RemoteLevelStatistics& redis = snapshot.store.l2_remote;
  Json json = HasMemory(snapshot.config->l2.kind)
                  ? TotalsJson("l2", "memory+redis", IsL2Up(snapshot), totals)
                  : WithoutUnknown(TotalsJson("l2", "redis", IsL2Up(snapshot), totals));
  json["nodes"] = Json::array();
  for (const RemoteNodeStatistics& node : redis.nodes) {
    json["nodes"].push_back(
        {{"address", node.address}, {"bypassed", node.bypassed}, {"failures", node.failures}});
  }
  json["redirects"] = {{"moved", redis.moved}, {"ask", redis.ask}, {"try_again", redis.try_again}};
  return json;
}

// Only the levels that there are, the highest first.
Json LevelsJson(const Snapshot& snapshot) {
  Json levels = Json::array();
  if (const LevelTotals l1 = TotalsOfL1(snapshot); l1.configured) {
    levels.push_back(TotalsJson("l1", "gpu", IsL1Up(snapshot), l1));
  }
  if (const LevelTotals l2 = TotalsOfL2(snapshot); l2.configured) {
    levels.push_back(HasRedis(snapshot.config->l2.kind)
                         ? RedisJson(snapshot, l2)
                         : TotalsJson("l2", "memory", IsL2Up(snapshot), l2));
  }
  uint64_t rows = 0;
  uint64_t bytes = 0;
  for (const TableInfo& table : snapshot.tables) {
    rows += table.row_count;
    bytes += table.bytes;
  }
  const DurableStatistics& l3 = snapshot.store.l3;
  levels.push_back({{"name", "l3"},
                    {"kind", "rocksdb"},
                    {"up", IsL3Up(snapshot)},
                    {"rows", rows},
                    {"bytes", bytes},
                    {"errors", snapshot.store.l3_errors},
                    {"damaged_reads", l3.damaged_reads},
                    {"background_errors", l3.background_errors},
                    {"free_bytes", l3.free_bytes},
                    {"free_bytes_min", FreeBytesMin(snapshot)}});
  return levels;
}

Json TableJson(const TableInfo& table) {
  return {{"name", table.spec.name},
          {"dim", table.spec.dim},
          {"dtype", std::string(DtypeName(table.spec.dtype))},
          {"rows", table.row_count},
          {"bytes", table.bytes},
          {"served", false}};
}

void AddTableCounts(const Snapshot& snapshot, const TableStatistics& counts, Json* table) {
  Json& json = *table;
  json["served"] = true;
  for (size_t status = 0; status < kKeyStatusCount; ++status) {
    json["keys"][std::string(kKeyStatusNames[status])] = counts.keys.by_status[status];
  }
  if (!counts.l1_devices.empty()) json["l1"] = LevelJson(counts.l1);
  const L2Kind l2 = snapshot.config->l2.kind;
  if (HasMemory(l2)) json["l2"] = LevelJson(counts.l2);
  if (l2 == L2Kind::kRedis) json["l2"] = WithoutUnknown(LevelJson(counts.l2));
  for (const DeviceStatistics& device : counts.l1_devices) {
    json["devices"].push_back({{"device", device.device},
                               {"hits", device.hits},
                               {"misses", device.misses},
                               {"rows", device.l1.entries},
                               {"bytes", device.l1.bytes_used},
                               {"bytes_max", device.l1.bytes_max}});
  }
}

Json TablesJson(const Snapshot& snapshot) {
  Json tables = Json::array();
  for (const TableInfo& table : snapshot.tables) {
    Json json = TableJson(table);
    for (const TableStatistics& counts : snapshot.store.tables) {
      if (counts.name == table.spec.name) AddTableCounts(snapshot, counts, &json);
    }
    tables.push_back(std::move(json));
  }
  return tables;
}

}  // namespace

std::string OverviewJson(const Snapshot& snapshot) {
  Json json = {{"version", kOverviewVersion},
               {"unix_ms", snapshot.unix_ms},
               {"problems", ProblemsOf(snapshot)},
               {"server", ServerJson(snapshot)},
               {"process", ProcessJson(snapshot)},
               {"latency_bucket_seconds", kLatencyBucketSeconds},
               {"models", ModelsJson(snapshot)},
               {"store",
                {{"lookups", snapshot.store.lookups},
                 {"lookups_late", snapshot.store.deadlines_exceeded},
                 {"promotions_dropped", snapshot.store.promotions_dropped}}},
               {"levels", LevelsJson(snapshot)},
               {"tables", TablesJson(snapshot)},
               {"updates", UpdatesJson(snapshot)},
               {"stream", StreamJson(snapshot)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hps::server
