// One model of the process: which tables it has now, and how it switches to others.
//
// Publish replaces the whole model with one pointer; running lookups keep the snapshot that they
// began with. A task on the reclaim executor frees an old snapshot once the guards that could see
// it have ended and its pins are gone. The last guard or pin to end posts that task, so nothing
// polls.
//
// Thread-safe. Publish may run during lookups and during other Publish calls, which run in turn.
// Must outlive its sessions and every task posted by them: end the executors first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/epoch.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "hps/statistics.h"
#include "serving/lookup_counters.h"
#include "serving/model_snapshot.h"

namespace hps {

class SnapshotPin;

class LiveModel final : private EpochDomain::Waiter {
 public:
  class Guard;

  // `domain` is the process's (SessionFactory::epoch_domain), so that all sessions' guards count.
  LiveModel(std::string name, EpochDomain& domain, Executor& reclaim_executor);
  // REQUIRES: no session of any model in the domain, no pin and no posted task is left.
  ~LiveModel();
  LiveModel(const LiveModel&) = delete;
  LiveModel& operator=(const LiveModel&) = delete;

  const std::string& name() const { return name_; }

  // Switches the model to `tables`, in declared order (empty is legal: a model whose tables have
  // been dropped). If a table's incarnation has not changed, the caller passes the LiveTable that
  // CurrentTable returns. Tables that are not among `tables` any more are retired. `version` 0
  // keeps the model's version. `network` belongs to the snapshot; null: the model has none.
  // REQUIRES: no table is null, and no two have one name. Errors: RESOURCE_EXHAUSTED (more than
  // kTablesPerStoreMax names over the life of this object); nothing has changed then.
  absl::Status Publish(std::vector<std::shared_ptr<LiveTable>> tables, uint64_t version = 0,
                       std::shared_ptr<const ModelNetwork> network = nullptr);

  // Switches the model to no tables: lookups answer UNAVAILABLE until the next Publish.
  void Unload();

  // The current snapshot, for as long as the pin lives. For the composition.
  SnapshotPin PinCurrent();

  // Waits until every replaced snapshot has been freed: what it held alone has been given back.
  // False when `deadline` has passed. Only where the reclaim executor has threads of its own.
  bool AwaitReclaimed(Deadline deadline);

  // The served table of that name in the current snapshot; null when there is none. For the
  // composition and appliers, not for the read path.
  std::shared_ptr<LiveTable> CurrentTable(std::string_view name) const;

  // The version of the current snapshot; 0 = nothing has been published yet. Unload keeps it.
  uint64_t version() const;

  // That of the current snapshot.
  std::shared_ptr<const ModelNetwork> Network() const;

  // Those of the current snapshot, in declared order.
  std::vector<std::shared_ptr<LiveTable>> Tables() const;

  // Slots are numbered by first appearance and never reused; a slot keeps its counters over
  // switches.
  size_t SlotOf(std::string_view name) const;  // REQUIRES: a table of that name has been published
  LookupCounters& counters(size_t slot);

  // One entry for each table of the current snapshot, in declared order. DeviceStatistics::device
  // is the number of the cache: which device that is, the composition knows.
  std::vector<TableStatistics> Statistics() const;

  // Snapshots that have been replaced and are not freed yet.
  size_t retired_count() const { return retired_count_.load(std::memory_order_relaxed); }

 private:
  friend class SnapshotPin;

  struct Retired {
    std::unique_ptr<const ModelSnapshot> snapshot;
    uint64_t epoch = 0;  // when SafeEpoch reaches it no guard sees the snapshot
  };

  void Replace(std::vector<std::shared_ptr<LiveTable>> tables, uint64_t version, bool unloaded,
               std::shared_ptr<const ModelNetwork> network) HPS_REQUIRES(mutex_);
  size_t SlotForName(const std::string& name) HPS_REQUIRES(mutex_);
  bool CanReclaim(const Retired& retired) const;
  bool HasReclaimable() const;
  // A guard of any model in the domain has ended, or a pin of this model.
  void OnGuardEnded() override;
  void PostReclaim();
  void Reclaim();

  const std::string name_;
  EpochDomain& domain_;
  Executor& reclaim_executor_;
  std::atomic<const ModelSnapshot*> current_{nullptr};
  // Read-modify-write on both sides (Publish, and the end of a guard), so that one of the two
  // always sees the other.
  std::atomic<size_t> retired_count_{0};
  std::atomic<bool> reclaim_posted_{false};
  FunctionTask reclaim_task_{[this] { Reclaim(); }};  // one at a time
  mutable Mutex mutex_;
  std::unique_ptr<const ModelSnapshot> current_owned_ HPS_GUARDED_BY(mutex_);
  std::list<Retired> retired_ HPS_GUARDED_BY(mutex_);
  size_t freeing_count_ HPS_GUARDED_BY(mutex_) = 0;  // snapshots on their way out of memory
  CondVar reclaimed_;
  std::vector<std::string> slot_names_ HPS_GUARDED_BY(mutex_);
  std::deque<LookupCounters> counters_ HPS_GUARDED_BY(mutex_);  // addresses stay
};

// A lookup's view of the model: holds an epoch guard for its life. For one thread; `reader` belongs
// to the session. The view is the current snapshot, or `pinned`, which a pin of the session holds.
class LiveModel::Guard {
 public:
  Guard(LiveModel& state, EpochDomain::Reader& reader, const ModelSnapshot* pinned = nullptr)
      : state_(state), reader_(reader) {
    reader_.Enter();
    const ModelSnapshot* current = state_.current_.load(std::memory_order_seq_cst);
    snapshot_ = pinned == nullptr ? current : pinned;
  }
  ~Guard() {
    // Snapshots of other models may have waited for this guard too.
    reader_.LeaveAndAnnounce();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  LiveModel& state() const { return state_; }
  const ModelSnapshot& snapshot() const { return *snapshot_; }

 private:
  LiveModel& state_;
  EpochDomain::Reader& reader_;
  const ModelSnapshot* snapshot_;
};

// Keeps a snapshot alive for work that outlives the lookup that began it. Movable; empty when
// default-made or moved from.
class SnapshotPin {
 public:
  SnapshotPin() = default;
  explicit SnapshotPin(const LiveModel::Guard& guard)
      : SnapshotPin(&guard.state(), &guard.snapshot()) {}  // the guard's end orders it

  void Release() { snapshot_.reset(); }

  // Another pin of the same snapshot.
  SnapshotPin Share() const { return SnapshotPin(state(), snapshot()); }

  LiveModel* state() const { return snapshot_.get_deleter().state; }
  const ModelSnapshot* snapshot() const { return snapshot_.get(); }  // null when empty

 private:
  friend class LiveModel;

  struct Unpin {
    LiveModel* state;
    void operator()(const ModelSnapshot* snapshot) const;
  };
  // REQUIRES: the snapshot can't go away meanwhile.
  SnapshotPin(LiveModel* state, const ModelSnapshot* snapshot) : snapshot_(snapshot, {state}) {
    if (snapshot_ != nullptr) snapshot_->pins_.fetch_add(1, std::memory_order_relaxed);
  }

  std::unique_ptr<const ModelSnapshot, Unpin> snapshot_;
};

}  // namespace hps
