// What the lookup sessions of a process share: executors, scratch, epochs; and how sessions are
// made.
//
// The composition makes one SessionFactory, one LiveModel for each model (with epoch_domain()),
// publishes its tables, and then makes sessions. Order of ending: sessions; the fetch executor (it
// runs the queued tasks); the promote executor; the LiveModels; the factory; the tiers.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/epoch.h"
#include "base/executor.h"
#include "base/limits.h"
#include "hps/lookup_session.h"
#include "hps/statistics.h"
#include "query/fetch/fetch_service.h"
#include "query/fetch/staged_fetch_tuning.h"
#include "query/session_shared.h"
#include "serving/device_health.h"
#include "serving/live_model.h"
#include "tier/device_cache.h"

namespace hps {

class SessionFactory {
 public:
  struct Options {
    Executor* fetch_executor = nullptr;    // its clock is the sessions' clock
    Executor* promote_executor = nullptr;  // queue maximum: kPromotionsQueuedMax
    // At most kCachesMax, each of another device; borrowed.
    std::vector<DeviceCache*> caches{};
    // Of the caches' devices, in their order; borrowed. Empty: the factory has its own.
    std::vector<DeviceHealth*> healths{};
    Duration timeout = std::chrono::seconds(1);  // where a request names none
    size_t scratch_count = kFetchScratchesMax;   // per blocking level
    // Fetch workers that help with a device's misses wait this long for more of them, on their
    // cores: to wake one takes some tens of microseconds, a call of 131,072 keys some hundreds.
    Duration helper_spin = std::chrono::microseconds(500);
    StagedFetchTuning tuning{};
  };

  // Errors: RESOURCE_EXHAUSTED (no memory for the scratch).
  static absl::StatusOr<std::unique_ptr<SessionFactory>> Create(const Options& options);
  SessionFactory(Options options, std::unique_ptr<FetchService> fetch);

  // A session on `model`, whose tables are those of its current snapshot. options.device names one
  // of the caches by DeviceCache::device(); -1 is the host, with a cache only if one of device -1
  // is among them.
  // Errors: INVALID_ARGUMENT (keys_max of 0 or over kKeysPerCallMax, an output dtype other than
  // float32), UNAVAILABLE (no such device, or the model was unloaded), FAILED_PRECONDITION (nothing
  // published yet), RESOURCE_EXHAUSTED (memory, or kEpochReadersMax sessions).
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(LiveModel& model,
                                                            const SessionOptions& options,
                                                            SessionResources resources = nullptr) {
    return MakeSession(model, SnapshotPin(), options, std::move(resources));
  }

  // The same on the tables of `pin`, whatever the model switches to meanwhile: the session keeps a
  // pin of its own.
  absl::StatusOr<std::unique_ptr<LookupSession>> NewPinnedSession(
      const SnapshotPin& pin, const SessionOptions& options, SessionResources resources = nullptr) {
    return MakeSession(*pin.state(), pin.Share(), options, std::move(resources));
  }

  EpochDomain& epoch_domain() { return domain_; }

  // Waits until the promotions queued so far are done. Errors: DEADLINE_EXCEEDED.
  absl::Status DrainPromotions(Duration timeout) { return shared_.fetch->Drain(timeout); }

  // Adds lookups, promotions_dropped, deadlines_exceeded, l1_unavailable and l3_errors; not the
  // tables, which LiveModel::Statistics gives.
  void AddStatistics(StoreStatistics* statistics) const;

 private:
  absl::StatusOr<std::unique_ptr<LookupSession>> MakeSession(LiveModel& model, SnapshotPin pin,
                                                             const SessionOptions& options,
                                                             SessionResources resources);

  Options options_;  // not changed once it is made
  std::vector<std::unique_ptr<DeviceHealth>> own_healths_;
  EpochDomain domain_;
  SessionShared shared_;
  std::atomic<size_t> sessions_made_{0};
};

}  // namespace hps
