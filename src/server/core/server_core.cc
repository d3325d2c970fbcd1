#include "server/core/server_core.h"

#include "base/macros.h"
#include "base/server_threads.h"
#include "base/unix_time.h"

namespace hps::server {
namespace {

InferenceEngine::Options EngineOptions(const Config& config, const ModelManager& life_cycle,
                                       const ServerCore::Options& options) {
  return {.server = config.server,
          .lookup_timeout = config.lookup.timeout,
          .slot_count = LookupSlots(config.server),
          .device_count = life_cycle.devices().size(),
          .lookup_keys_max = LookupKeysMax(config, life_cycle),
          .clock = options.clock};
}

}  // namespace

ServerCore::ServerCore(const Config& config, ModelManager& life_cycle, const Options& options)
    : clock_(options.clock),
      started_at_(options.started_at == TimePoint() ? options.clock->Now() : options.started_at),
      start_unix_ms_(static_cast<uint64_t>(UnixMilliseconds())),
      repository_(life_cycle,
                  ModelVersion::OptionsFor(config, life_cycle, LookupSlots(config.server)),
                  models_),
      engine_(EngineOptions(config, life_cycle, options), models_, counters_) {}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(const Config& config,
                                                               ModelManager& life_cycle,
                                                               const Options& options) {
  std::unique_ptr<ServerCore> core(new ServerCore(config, life_cycle, options));
  if (!options.with_timer) return core;
  if (config.server.batch_wait > Duration::zero()) {
    const size_t slots = LookupSlots(config.server);
    HPS_ASSIGN_OR_RETURN(
        core->lookups_,
        WorkerPool::Create({.name = "hps-lookup", .thread_count = slots, .queue_max = slots}));
  }
  HPS_ASSIGN_OR_RETURN(
      core->timer_, WorkerPool::Create({.name = "hps-timer", .thread_count = 1, .queue_max = 1}));
  HPS_RETURN_IF_ERROR(core->timer_->Post(&core->timer_task_));
  return core;
}

ServerCore::~ServerCore() {
  engine_.StopWaiting();
  timer_.reset();
  lookups_.reset();
  repository_.Close();
}

absl::Status ServerCore::LoadAll() {
  const absl::Status loaded = repository_.LoadAll();
  if (loaded.ok())
    ready_after_ns_.store(Duration(clock_->Now() - started_at_).count(), std::memory_order_relaxed);
  return loaded;
}

ServerStatistics ServerCore::Snapshot() const {
  ServerStatistics statistics;
  statistics.start_unix_ms = start_unix_ms_;
  statistics.ready = repository_.ServerReady();
  statistics.draining = repository_.draining();
  statistics.ready_after_seconds =
      static_cast<double>(ready_after_ns_.load(std::memory_order_relaxed)) / 1e9;
  counters_.Fill(&statistics);
  statistics.keys_in_flight = engine_.admission().keys_in_flight();
  statistics.bytes_in_flight = engine_.admission().bytes_in_flight();
  for (const ServerModel* model : models_.models()) {
    ModelServerStatistics& of_model = statistics.models.emplace_back();
    of_model.model = model->name();
    of_model.version = model->index_entry().version;
    of_model.queue_depth = model->queue.depth.load(std::memory_order_relaxed);
    model->counters.Fill(&of_model);
    const ModelVersionRef version = model->version();
    if (version && version->predictor() != nullptr) of_model.network = version->predictor()->runs();
  }
  return statistics;
}

}  // namespace hps::server
