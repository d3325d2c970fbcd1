// Level 1 of a process: the tables in the caches of its devices (node/device_caches.h), and their
// budgets.
//
// Every table has the same budget on every device. A table of a new version gets its budget before
// the switch if enough memory is free, otherwise when the tables that it replaces have been
// destroyed: memory is never held for two incarnations. Until then, lookups bypass level 1. A table
// that replaces another one is filled with the keys that the old one held. Other tables are filled
// with the keys of [[model.table]] l1_hot_keys and with the share l1.preload.
//
// A device that does not answer takes no table: it waits, as for memory, until the device answers
// again. So a device that hangs does not keep models from being loaded on the others.
//
// The budget of a table is fixed when it is loaded, as in level 2 (node/served_models.h).
//
// Thread-safe. Must outlive the tables returned by Tracked. Has one thread, which fills tables that
// had to wait for memory, and pins memory of level 2 (serving/l2_pinner.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "hps/config.h"
#include "hps/statistics.h"
#include "node/device_caches.h"
#include "serving/l2_pinner.h"
#include "serving/live_table.h"
#include "tier/device_cache_factory.h"

namespace hps {

class DeviceLevel {
 public:
  // Opens the caches. Errors: those of DeviceCaches::Create.
  static absl::StatusOr<std::unique_ptr<DeviceLevel>> Create(const Config& config,
                                                             const DeviceCaches::Options& options,
                                                             const DeviceCacheFactory& factory);
  ~DeviceLevel();
  DeviceLevel(const DeviceLevel&) = delete;
  DeviceLevel& operator=(const DeviceLevel&) = delete;

  const DeviceCaches& devices() const { return *devices_; }

  // For level 2's tables, which it must outlive; null without a device, or if l2.pinned_bytes_max
  // is 0.
  HostMemoryPinner* l2_pinner() const { return l2_pinner_.get(); }

  // A new table of the version that a model will switch to, or one that waits to be loaded.
  struct Demand {
    TableSpec spec;
    uint64_t row_count = 0;
    bool waits = false;                     // its model is not loaded yet: the part is kept for it
    std::optional<double> share{};          // [[model.table]] l1_share
    std::optional<uint64_t> fixed_bytes{};  // [[model.table]] l1_bytes
  };
  // The budget of each table on each device, in the order of `demands`; 0 = none. `replaced` are
  // the tables that the switch replaces or drops; their memory counts as free.
  std::vector<uint64_t> Divide(std::span<const Demand> demands,
                               std::span<const LiveTable* const> replaced) const;

  // The same table, with a deleter that returns its budget. Serve every table through this.
  std::shared_ptr<LiveTable> Tracked(std::shared_ptr<LiveTable> table);

  struct Adoption {
    std::shared_ptr<LiveTable> table;   // from Tracked, without a budget
    const LiveTable* former = nullptr;  // the incarnation that it replaces; null = none
    uint64_t bytes = 0;                 // from Divide
    std::string hot_keys_path{};        // [[model.table]] l1_hot_keys
  };
  // Opens the table in every cache and fills it: now, or when enough memory is free.
  void Adopt(const Adoption& adoption);

  // Ends and disables filling, so that the process can exit quickly.
  void StopFilling() { filling_.store(false, std::memory_order_relaxed); }

 private:
  // A table that waits in one cache, for memory or for the device to answer.
  struct PendingTable {
    std::weak_ptr<LiveTable> table;
    size_t cache = 0;
    uint64_t bytes = 0;
    std::vector<Key> keys{};  // to fill it with
    bool preload = false;     // whether to fill it with the share l1.preload, too
  };

  explicit DeviceLevel(const Config& config) : config_(config) {}
  // Errors: RESOURCE_EXHAUSTED, and UNAVAILABLE if the device does not answer.
  absl::Status Attach(LiveTable& table, size_t cache, uint64_t bytes);
  void NoteWait(size_t cache, const absl::Status& status) const;
  std::vector<Key> KeysFor(const Adoption& adoption, size_t cache) const;
  bool MayFill(const LiveTable& table) const;
  void Fill(LiveTable& table, size_t cache, std::span<const Key> keys) const;
  void Preload(LiveTable& table, size_t cache) const;
  void Forget(const LiveTable* table);
  void PostAttach();
  void AttachPending();

  const Config& config_;
  std::unique_ptr<const DeviceCaches> devices_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> filling_{true};
  std::atomic<bool> attach_posted_{false};
  FunctionTask attach_task_{[this] { AttachPending(); }};  // at most one is queued
  mutable Mutex mutex_;
  // Budgets of the tables that exist.
  std::map<const LiveTable*, uint64_t> granted_ HPS_GUARDED_BY(mutex_);
  std::vector<PendingTable> pending_ HPS_GUARDED_BY(mutex_);
  std::unique_ptr<L2Pinner> l2_pinner_;
  std::unique_ptr<WorkerPool> executor_;  // null without a device; declared last, so it ends first
};

}  // namespace hps
