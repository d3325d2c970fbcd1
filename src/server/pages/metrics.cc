#include "server/pages/metrics.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/status/status.h"
#include "server/pages/metric_list.h"
#include "server/pages/update_pages.h"

namespace hps::server {
namespace {

using Reasons = std::vector<std::pair<std::string, uint64_t>>;

void AddByWord(const Reasons& counts, const char* label, MetricFamilyBuilder family) {
  for (const auto& [word, count] : counts) family.Add(count, {{label, word}});
}

void AddServer(const Snapshot& snapshot, MetricList& list) {
  const ServerStatistics& server = snapshot.server;
  const ServerConfig& limits = snapshot.config->server;
  list.Gauge("hps_build_info", "The version of hps; always 1.")
      .Add(1.0, {{"version", HPS_VERSION}});
  list.Gauge("hps_ready", "1 while every configured model is loaded and the server does not drain.")
      .Add(server.ready);
  list.Gauge("hps_draining", "1 while the server drains.").Add(server.draining);
  list.Gauge("hps_start_time_seconds", "Unix time at which the server started.")
      .Add(static_cast<double>(server.start_unix_ms) * 1e-3);
  list.Gauge("hps_recovery_seconds", "From the server's start until it was ready; 0 before.")
      .Add(server.ready_after_seconds);
  list.Counter("hps_requests_total", "Requests of every kind, also refused ones.")
      .Add(server.http.requests, {{"protocol", "http"}})
      .Add(server.grpc.requests, {{"protocol", "grpc"}});
  list.Gauge("hps_http_connections", "Open HTTP connections.").Add(server.http.connections);
  list.Gauge("hps_http_connections_max", "HTTP connections beyond which new ones are refused.")
      .Add(uint64_t{limits.connections_max});
  list.Gauge("hps_grpc_connections", "Open gRPC connections.").Add(server.grpc.connections);
  list.Gauge("hps_grpc_connections_max", "gRPC connections beyond which new ones are refused.")
      .Add(uint64_t{limits.connections_max});
  list.Gauge("hps_keys_in_flight", "Keys of admitted requests.").Add(server.keys_in_flight);
  list.Gauge("hps_keys_in_flight_max", "Keys in flight beyond which requests are refused.")
      .Add(limits.keys_in_flight_max);
  list.Gauge("hps_bytes_in_flight", "Bytes of admitted requests and their answers.")
      .Add(server.bytes_in_flight);
  list.Gauge("hps_bytes_in_flight_max", "Bytes in flight beyond which requests are refused.")
      .Add(limits.bytes_in_flight_max);
  AddByWord(server.refused, "reason",
            list.Counter("hps_requests_refused_total", "Requests refused at once, by reason."));
  AddByWord(server.bad_requests, "reason",
            list.Counter("hps_bad_requests_total", "Requests that were wrong, by reason."));
  AddByWord(server.deadlines_exceeded, "stage",
            list.Counter("hps_deadline_exceeded_total",
                         "Requests whose deadline passed, by where they were then."));
  list.Counter("hps_auth_failures_total", "Requests without the right token.")
      .Add(server.auth_failures);
  if (server.certificate_not_after == 0) return;
  list.Gauge("hps_tls_certificate_not_after_seconds",
             "Unix time at which the TLS certificate in use expires.")
      .Add(static_cast<double>(server.certificate_not_after));
}

void AddModelStates(const Snapshot& snapshot, MetricList& list) {
  MetricFamilyBuilder ready = list.Gauge("hps_model_ready", "1 while the model is served.");
  for (const ModelIndexEntry& model : snapshot.models) {
    ready.Add(model.state == ModelState::kReady, {{"model", model.name}});
  }
}

void AddModel(const ModelServerStatistics& model, MetricList& list) {
  const MetricLabels labels = {{"model", model.model}};
  list.Counter("hps_model_requests_total", "Admitted requests, by how they ended.")
      .Add(model.requests, {{"model", model.model}, {"result", "ok"}})
      .Add(model.requests_failed, {{"model", model.model}, {"result", "error"}});
  list.Counter("hps_model_keys_total", "Keys that requests asked for.").Add(model.keys, labels);
  list.Counter("hps_model_batches_total", "Lookups that answered the requests.")
      .Add(model.batches, labels);
  if (model.network.has_value()) {
    list.Counter("hps_network_runs_total",
                 "Runs of the dense network since the served version was loaded, by where: gpu, "
                 "cpu, or cpu because the GPU failed.")
        .Add(model.network->on_devices, {{"model", model.model}, {"place", "gpu"}})
        .Add(model.network->on_cpu, {{"model", model.model}, {"place", "cpu"}})
        .Add(model.network->device_failures, {{"model", model.model}, {"place", "cpu_after_gpu"}});
  }
  list.Gauge("hps_queue_depth", "Requests that wait for a lookup, by their model's queue.")
      .Add(model.queue_depth, {{"queue", model.model}});
  MetricFamilyBuilder latency =
      list.Histogram("hps_lookup_seconds",
                     "Where the time of answered requests goes; the stages are parts of total.");
  for (size_t stage = 0; stage < kStageCount; ++stage) {
    latency.Add(model.stages[stage], {{"model", model.model}, {"stage", kStageNames[stage]}});
  }
  list.Histogram("hps_batch_requests", "Requests that one lookup answered.")
      .Add(model.batch_sizes, static_cast<double>(model.requests + model.requests_failed), labels);
}

// Triton's names, for the dashboards that people have.
void AddTritonNames(const ModelServerStatistics& model, MetricList& list) {
  const MetricLabels labels = {{"model", model.model}, {"version", model.version}};
  const auto microseconds = [&model](Stage stage) {
    return model.stages[static_cast<size_t>(stage)].sum_ns / 1000;
  };
  list.Counter("nv_inference_request_success", "Number of successful inference requests")
      .Add(model.requests, labels);
  list.Counter("nv_inference_request_failure", "Number of failed inference requests")
      .Add(model.requests_failed, labels);
  list.Counter("nv_inference_count", "Number of inferences performed").Add(model.requests, labels);
  list.Counter("nv_inference_exec_count", "Number of model executions performed")
      .Add(model.batches, labels);
  list.Counter("nv_inference_request_duration_us", "Cumulative request duration in microseconds")
      .Add(microseconds(Stage::kTotal), labels);
  list.Counter("nv_inference_queue_duration_us", "Cumulative queuing duration in microseconds")
      .Add(microseconds(Stage::kQueue), labels);
  list.Counter("nv_inference_compute_input_duration_us", "Cumulative input duration")
      .Add(microseconds(Stage::kDecode), labels);
  list.Counter("nv_inference_compute_infer_duration_us", "Cumulative inference duration")
      .Add(microseconds(Stage::kLookup), labels);
  list.Counter("nv_inference_compute_output_duration_us", "Cumulative output duration")
      .Add(microseconds(Stage::kEncode), labels);
  list.Gauge("nv_inference_pending_request_count", "Requests that wait")
      .Add(model.queue_depth, labels);
}

// One sample for each code that occurred. What a level counts without one is UNKNOWN, which is
// there always, so that the family is.
void AddErrors(const char* tier, uint64_t total, const ErrorCounts& by_code,
               MetricFamilyBuilder& errors) {
  constexpr auto kUnknown = static_cast<size_t>(absl::StatusCode::kUnknown);
  uint64_t known = 0;
  for (size_t i = 0; i < kStatusCodeCount; ++i) {
    if (i == kUnknown || by_code[i] == 0) continue;
    known += by_code[i];
    errors.Add(by_code[i], {{"tier", tier},
                            {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(i))}});
  }
  errors.Add(total - std::min(known, total),
             {{"tier", tier}, {"code", absl::StatusCodeToString(absl::StatusCode::kUnknown)}});
}

void AddTiers(const Snapshot& snapshot, MetricList& list) {
  const LevelTotals l1 = TotalsOfL1(snapshot);
  const LevelTotals l2 = TotalsOfL2(snapshot);
  const DurableStatistics& l3 = snapshot.store.l3;
  MetricFamilyBuilder up = list.Gauge(
      "hps_tier_up", "1 while the level works; a level that is not there has no sample.");
  up.Add(IsL3Up(snapshot), {{"tier", "l3"}});
  if (l2.configured) up.Add(IsL2Up(snapshot), {{"tier", "l2"}});
  if (l1.configured) up.Add(IsL1Up(snapshot), {{"tier", "l1"}});
  MetricFamilyBuilder devices = list.Gauge(
      "hps_device_up", "1 while a device of level 1 answers; 0 also where it has no cache.");
  for (const DeviceState& device : snapshot.store.devices)
    devices.Add(device.up, {{"device", std::to_string(device.device)}});
  MetricFamilyBuilder errors = list.Counter("hps_tier_errors_total",
                                            "Failed or timed-out operations of a level, by status "
                                            "code; UNKNOWN also where none is known.");
  AddErrors("l3", snapshot.store.l3_errors, snapshot.store.l3_errors_by_code, errors);
  if (l2.configured) AddErrors("l2", l2.sum.errors, l2.sum.errors_by_code, errors);
  if (l1.configured) AddErrors("l1", l1.sum.errors, l1.sum.errors_by_code, errors);
  list.Counter("hps_row_checksum_failures_total", "Rows and blocks that reads found damaged.")
      .Add(l3.damaged_reads, {{"tier", "l3"}});
  list.Gauge("hps_store_free_bytes", "Free bytes of the store's disk.").Add(l3.free_bytes);
  list.Gauge("hps_store_free_bytes_min", "Free bytes below which writes are refused.")
      .Add(FreeBytesMin(snapshot));
  list.Gauge("hps_store_writable",
             "0 while an error of the disk keeps the store from being written.")
      .Add(IsL3Up(snapshot));
  list.Gauge("hps_store_read_only", "1 where the file system of the store is mounted read-only.")
      .Add(l3.read_only);
  list.Counter("hps_store_background_errors_total", "Errors of the disk while files were written.")
      .Add(l3.background_errors);
  MetricFamilyBuilder merges = list.Counter(
      "hps_store_merges_total", "Merges of a table's changes into new page files, by result.");
  merges.Add(l3.merges, {{"result", "ok"}});
  merges.Add(l3.merges_failed, {{"result", "error"}});
  list.Counter("hps_store_merged_bytes_total", "Bytes of the page files that merges made.")
      .Add(l3.merged_bytes);
  list.Counter("hps_lookups_total", "Lookups in the store.").Add(snapshot.store.lookups);
  list.Counter("hps_lookups_late_total", "Lookups whose rows had not all arrived in time.")
      .Add(snapshot.store.deadlines_exceeded);
  list.Counter("hps_promotions_dropped_total", "Promotions for which the queue had no room.")
      .Add(snapshot.store.promotions_dropped);
}

void AddRedis(const RemoteLevelStatistics& redis, MetricList& list) {
  MetricFamilyBuilder state =
      list.Gauge("hps_breaker_state",
                 "1 while lookups bypass the server of Redis because it failed (circuit breaker).");
  MetricFamilyBuilder failures = list.Counter(
      "hps_redis_failures_total", "Calls that the server failed or did not answer in time.");
  for (const RemoteNodeStatistics& node : redis.nodes) {
    state.Add(node.bypassed, {{"node", node.address}});
    failures.Add(node.failures, {{"node", node.address}});
  }
  list.Counter("hps_redis_redirects_total", "Replies that name another server, by kind.")
      .Add(redis.moved, {{"kind", "moved"}})
      .Add(redis.ask, {{"kind", "ask"}})
      .Add(redis.try_again, {{"kind", "try_again"}});
  list.Counter("hps_redis_slot_maps_total", "How often the cluster was asked who has which slots.")
      .Add(redis.slot_maps_learnt);
  list.Counter("hps_redis_changes_given_up_total",
               "Changes of shared tables that went on without a server that did not take them.")
      .Add(redis.changes_given_up);
}

struct LevelFigure {
  const char* name;
  const char* help;
  uint64_t LevelStatistics::*value;
  bool is_counter;
  bool is_known_of_redis = true;  // what Redis holds and evicts is not known
};
constexpr std::array kLevelFigures = {
    LevelFigure{"hps_level_rows", "Rows that the level holds.", &LevelStatistics::entries, false,
                false},
    LevelFigure{"hps_level_absent_rows", "Keys held as absent.", &LevelStatistics::absent_entries,
                false, false},
    LevelFigure{"hps_level_bytes", "Bytes in use, metadata included.", &LevelStatistics::bytes_used,
                false, false},
    LevelFigure{"hps_level_bytes_max", "The table's budget in the level.",
                &LevelStatistics::bytes_max, false, false},
    LevelFigure{"hps_level_insertions_total", "Rows inserted.", &LevelStatistics::insertions, true},
    LevelFigure{"hps_level_updates_total", "Rows updated.", &LevelStatistics::updates, true},
    LevelFigure{"hps_level_evictions_total", "Rows that gave way.", &LevelStatistics::evictions,
                true, false},
    LevelFigure{"hps_level_fenced_total", "Promotions that a newer update kept out.",
                &LevelStatistics::refused, true},
    LevelFigure{"hps_level_dropped_total", "Insertions for which there was no room.",
                &LevelStatistics::dropped, true},
    LevelFigure{"hps_level_not_admitted_total",
                "Rows that the full level left out, because they are asked for rarely.",
                &LevelStatistics::not_admitted, true},
};

void AddLevel(const std::string& table, const char* level, const LevelStatistics& statistics,
              bool is_redis, MetricList& list) {
  for (const LevelFigure& figure : kLevelFigures) {
    if (is_redis && !figure.is_known_of_redis) continue;
    MetricFamilyBuilder family = figure.is_counter ? list.Counter(figure.name, figure.help)
                                                   : list.Gauge(figure.name, figure.help);
    family.Add(statistics.*figure.value, {{"table", table}, {"level", level}});
  }
}

void AddTables(const Snapshot& snapshot, MetricList& list) {
  for (const TableInfo& table : snapshot.tables) {
    const MetricLabels labels = {{"table", table.spec.name}};
    list.Gauge("hps_table_rows", "Rows of the table in the store.").Add(table.row_count, labels);
    list.Gauge("hps_table_bytes", "Bytes of the table on disk.").Add(table.bytes, labels);
  }
  for (const TableStatistics& table : snapshot.store.tables) {
    MetricFamilyBuilder keys =
        list.Counter("hps_lookup_keys_total", "Keys by what was answered, duplicates included.");
    for (size_t status = 0; status < kKeyStatusCount; ++status) {
      keys.Add(table.keys.by_status[status],
               {{"table", table.name}, {"status", std::string(kKeyStatusNames[status])}});
    }
    const L2Kind l2 = snapshot.config->l2.kind;
    if (l2 != L2Kind::kNone) AddLevel(table.name, "l2", table.l2, l2 == L2Kind::kRedis, list);
    if (!table.l1_devices.empty()) AddLevel(table.name, "l1", table.l1, false, list);
    MetricFamilyBuilder devices = list.Counter(
        "hps_device_keys_total", "Keys that lookups on a device asked its level 1 for.");
    for (const DeviceStatistics& device : table.l1_devices) {
      const std::string number = std::to_string(device.device);
      devices.Add(device.hits, {{"table", table.name}, {"device", number}, {"outcome", "hit"}});
      devices.Add(device.misses, {{"table", table.name}, {"device", number}, {"outcome", "miss"}});
    }
  }
}

void AddProcess(const Snapshot& snapshot, MetricList& list) {
  const ProcessStatistics& process = snapshot.process;
  list.Counter("process_cpu_seconds_total", "User and system CPU time.").Add(process.cpu_seconds);
  list.Gauge("process_resident_memory_bytes", "Resident memory.").Add(process.resident_bytes);
  list.Gauge("process_virtual_memory_bytes", "Virtual memory.").Add(process.virtual_bytes);
  list.Gauge("process_open_fds", "Open file descriptors.").Add(process.open_files);
  list.Gauge("process_max_fds", "File descriptors that may be open.").Add(process.open_files_max);
  list.Gauge("process_threads", "Threads.").Add(process.threads);
  list.Gauge("process_start_time_seconds", "Unix time at which the process started.")
      .Add(process.start_unix_seconds);
  constexpr std::array kLevels = {"debug", "info", "warning", "error"};
  MetricFamilyBuilder lines = list.Counter("hps_log_lines_total", "Lines of the log, by level.");
  for (size_t level = 0; level < kLevels.size(); ++level) {
    lines.Add(snapshot.log.written[level], {{"level", kLevels[level]}});
  }
  list.Counter("hps_log_lines_left_out_total", "Lines that the log's rate limit left out.")
      .Add(snapshot.log.left_out);
}

}  // namespace

std::string MetricsText(const Snapshot& snapshot) {
  MetricList list;
  AddServer(snapshot, list);
  AddModelStates(snapshot, list);
  for (const ModelServerStatistics& model : snapshot.server.models) {
    AddModel(model, list);
    AddTritonNames(model, list);
  }
  AddTiers(snapshot, list);
  if (HasRedis(snapshot.config->l2.kind)) AddRedis(snapshot.store.l2_remote, list);
  AddTables(snapshot, list);
  AddUpdateMetrics(snapshot, list);
  AddProcess(snapshot, list);
  return list.Text();
}

}  // namespace hps::server
