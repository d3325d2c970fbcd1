// Level 1 of a process: a cache on each configured device, and the parts of it that tables have.
//
// Every table has the same part of every device's cache. A table that comes with a switch gets its
// part before the switch where it is free, else when others have given theirs back, those that it
// replaces or that are to have less: no memory is held for two incarnations. Calls pass level 1 by
// until then. A new table is filled with the keys that the old one held, as they were hot; one that
// had nothing with those of [[model.table]] l1_hot_keys and with a share of the table, l1.preload.
//
// Every switch divides the level anew, by the rules of level 2 (RedivideBudget in budget.h).
//
// Thread-safe. Must outlive the tables that went through Watched. A thread of its own fills late.
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
#include "query/snapshot/served_table.h"
#include "tier/device_cache_factory.h"

namespace hps {

class DeviceLevel {
 public:
  // `config` and `factory` are borrowed; a server has calls for its look-ups where the
  // configuration does not say how many. Devices that are listed must be there; of those that
  // "auto" found, one that has no room is left out, with a warning.
  // Errors: those of DeviceCacheFactory::Make, for a listed device.
  static absl::StatusOr<std::unique_ptr<DeviceLevel>> Create(const Config& config, bool is_server,
                                                             const DeviceCacheFactory& factory);
  ~DeviceLevel();
  DeviceLevel(const DeviceLevel&) = delete;
  DeviceLevel& operator=(const DeviceLevel&) = delete;

  // By the cache numbers of ServedTable; empty without a device.
  std::vector<DeviceCache*> caches() const;

  // OK where a session may use the device: -1, or one of caches(). Errors: UNIMPLEMENTED (a build
  // without GPUs), UNAVAILABLE, with the reason.
  absl::Status CheckDevice(int device) const;

  // A table that is to be served after a switch.
  struct Demand {
    const TableSpec* spec = nullptr;
    uint64_t row_count = 0;
    const ServedTable* served = nullptr;    // where it stays as it is; null: it is new
    std::optional<double> share{};          // [[model.table]] l1_share
    std::optional<uint64_t> fixed_bytes{};  // [[model.table]] l1_bytes
  };
  // The bytes of a device's cache for each table, in the order of `demands`; 0 = none. `going` are
  // the tables that the switch replaces or drops: what they hold counts as free. One that stays and
  // is to have other bytes than BytesOf has to come anew, unless it has none yet.
  std::vector<uint64_t> Divide(std::span<const Demand> demands,
                               std::span<const ServedTable* const> going) const;

  // What the table was given of each device's cache; it may still be waiting for it. 0 = nothing.
  uint64_t BytesOf(const ServedTable& table) const;

  // The same table, whose end is noticed: every table has to be served as this.
  std::shared_ptr<ServedTable> Watched(std::shared_ptr<ServedTable> table);

  struct Adoption {
    std::shared_ptr<ServedTable> table;  // watched, and without a part
    const ServedTable* former =
        nullptr;                  // the incarnation that it replaces; null when there is none
    uint64_t bytes = 0;           // as divided
    std::string hot_keys_path{};  // [[model.table]] l1_hot_keys
  };
  // Gives a table its part of every cache and fills it: now, or when the part is free.
  void Adopt(const Adoption& adoption);

  // Nothing more is read into the caches to fill them: the process is to end.
  void StopFilling() { filling_.store(false, std::memory_order_relaxed); }

  // Puts device numbers in the place of cache numbers.
  void NameDevices(std::span<TableStatistics> tables) const;

 private:
  // A table that waits for memory in one cache.
  struct Waiting {
    std::weak_ptr<ServedTable> table;
    size_t cache = 0;
    uint64_t bytes = 0;
    std::vector<Key> keys{};  // to fill it with
    bool preload = false;     // and with a share of the table
  };

  // Binds what waits; one at a time.
  class BindTask final : public Task {
   public:
    explicit BindTask(DeviceLevel& level) : level_(level) {}
    void Run() override { level_.BindWaiting(); }

   private:
    DeviceLevel& level_;
  };

  explicit DeviceLevel(const Config& config) : config_(config) {}
  absl::Status Open(bool is_server, const DeviceCacheFactory& factory);
  // With fewer calls where there is no room for so many, and they were not asked for.
  absl::Status MakeCache(const DeviceCacheFactory& factory, int device, size_t calls_max);
  absl::Status Attach(ServedTable& table, size_t cache, uint64_t bytes);
  std::vector<Key> KeysFor(const Adoption& adoption, size_t cache) const;
  bool MayFill(const ServedTable& table) const;
  void Fill(ServedTable& table, size_t cache, std::span<const Key> keys) const;
  void Preload(ServedTable& table, size_t cache, uint64_t bytes) const;
  void Forget(const ServedTable* table);
  void PostBind();
  void BindWaiting();

  const Config& config_;
  std::vector<std::unique_ptr<DeviceCache>> caches_;
  absl::Status devices_status_;             // why there are none
  std::map<int, absl::Status> left_out_{};  // devices without a cache, and why
  std::atomic<bool> closing_{false};
  std::atomic<bool> filling_{true};
  std::atomic<bool> bind_posted_{false};
  BindTask bind_task_{*this};
  mutable Mutex mutex_;
  // Bytes of each cache, of the tables that live.
  std::map<const ServedTable*, uint64_t> granted_ HPS_GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ HPS_GUARDED_BY(mutex_);
  std::unique_ptr<WorkerPool> executor_;  // null without a device; ends first
};

}  // namespace hps
