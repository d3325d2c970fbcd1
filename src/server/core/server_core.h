// The server without a protocol, put together: inference, repository, counters and the snapshot of
// what they measured, over the models of one store.
//
// Order of ending: the protocols (no call is left then), this object, the store.
#pragma once

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "hps/config.h"
#include "hps/model_manager.h"
#include "server/core/inference_engine.h"
#include "server/core/protocol_server.h"
#include "server/core/server_counters.h"
#include "server/core/server_model.h"
#include "server/core/store_repository.h"

namespace hps::server {

// Thread-safe.
class ServerCore final : public StatisticsSource {
 public:
  struct Options {
    TimePoint started_at{};  // from when the time to ready counts; default: from Create on
    // For tests: a clock of their own, and no thread (the test calls engine().EndDue()).
    const Clock* clock = &RealClock();
    bool with_timer = true;
  };

  // `life_cycle` is borrowed. No model is ready before LoadAll or Load.
  // Errors: RESOURCE_EXHAUSTED when the thread can't be started.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(const Config& config,
                                                            ModelManager& life_cycle,
                                                            const Options& options);
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(const Config& config,
                                                            ModelManager& life_cycle) {
    return Create(config, life_cycle, Options());
  }
  ~ServerCore() override;

  // Loads every model; the server is ready then. Errors: of the first model that could not be
  // loaded: the others are served, and the server does not say "ready".
  absl::Status LoadAll();

  // Says "not ready" from now on; the protocols let no new connection in, and what comes over the
  // others is answered.
  void BeginDrain() { repository_.BeginDrain(); }
  // Refuses every new call.
  void RefuseCalls() { engine_.RefuseCalls(); }
  // ... and answers what it has admitted, at once, with the rows that are there.
  void EndCalls() { engine_.EndCalls(); }

  InferenceEngine& engine() { return engine_; }
  StoreRepository& repository() { return repository_; }
  ServerCounters& counters() { return counters_; }

  ServerStatistics Snapshot() const override;

 private:
  ServerCore(const Config& config, ModelManager& life_cycle, const Options& options);

  const Clock* const clock_;
  const TimePoint started_at_;
  const uint64_t start_unix_ms_;
  std::atomic<int64_t> ready_after_ns_{0};
  ServerCounters counters_;
  ModelDirectory models_;
  StoreRepository repository_;
  InferenceEngine engine_;
  // Ends what is due, for as long as the core lives. It never looks up: the batches that have
  // waited long enough go to `lookups_`.
  FunctionTask timer_task_{[this] {
    while (engine_.AwaitDue()) engine_.EndDue(lookups_.get());
  }};
  std::unique_ptr<WorkerPool> lookups_;  // null where no batch waits for more calls
  std::unique_ptr<WorkerPool> timer_;
};

}  // namespace hps::server
