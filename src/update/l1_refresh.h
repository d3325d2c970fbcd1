// Brings level 1 of one table up to date with its changes: in every device cache that has the table
// and takes changes.
//
// Changes of a stream are noted, and RefreshChanged reads their rows later from levels 2 and 3. If
// too many keys are noted, a full refresh follows. It dumps the keys of each cache in turn, and
// covers everything that was noted before it began. A refresh works in steps of about 20 ms, each
// with the table's WriteLease, so that it lets switches and other changes in. A cache that fails is
// quarantined (update/level_repair.h), and the refresh goes on with the others.
//
// Thread-safe: a refresh takes the lease by itself. Some functions are for the holder of the lease,
// which guards all members that are not atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "serving/model_registry.h"
#include "update/freshness.h"
#include "update/level_repair.h"
#include "update/noted_keys.h"
#include "update/row_refresh.h"

namespace hps {

class L1Refresh {
 public:
  struct Options {
    std::string table;
    // Takes the table's lease. Calls Reset if the table's LiveTable has been replaced.
    std::function<absl::StatusOr<WriteLease>(Deadline)> acquire;
    LevelRepair* levels = nullptr;   // borrowed
    Freshness* freshness = nullptr;  // borrowed: of changes in level 1; null = not measured
    ForkJoinPool* teams = nullptr;   // borrowed; helpers; null = none
  };
  explicit L1Refresh(Options options) : options_(std::move(options)) {}
  L1Refresh(const L1Refresh&) = delete;
  L1Refresh& operator=(const L1Refresh&) = delete;

  // Brings level 1 up to date with the noted keys, and clears the levels that wait for it. Errors:
  // those of Options::acquire and DurableTable::Fetch; the keys stay noted.
  absl::Status RefreshChanged(Deadline deadline);

  // Reads every key that level 1 holds from levels 2 and 3 and updates it in place. RefreshChanged
  // goes on with one that ends with an error. Errors: as RefreshChanged, and FAILED_PRECONDITION if
  // a full refresh of this table is running.
  absl::Status RefreshAll(Deadline deadline);

  // Whether RefreshChanged has something to do.
  bool is_needed() const { return needs_full() || need_ != Need::kNothing; }

  uint64_t rows_refreshed() const { return rows_refreshed_.load(std::memory_order_relaxed); }

  // Of so many workers of a store, those that help; the others are left to lookups.
  static size_t Helpers(size_t workers);

  // For the holder of the lease. A change ends with Note or RefreshNow, also if its table has no
  // level 1.

  // Forgets what is noted: it was of a former LiveTable.
  void Reset();

  // RefreshChanged is to refresh the keys. `publish_times_us` are those of the changes, for the
  // freshness.
  void Note(const LiveTable& live, std::span<const Key> keys,
            std::span<const int64_t> publish_times_us = {});

  // Refreshes the keys at once. If that fails, level 1 is bypassed until RefreshChanged has
  // refreshed them.
  void RefreshNow(LiveTable& live, std::span<const Key> keys, Deadline deadline);

 private:
  enum class Need { kNothing, kChanged, kAll };
  // How far a full refresh is; `cursor` is that of DeviceCacheTable::Dump.
  struct DumpProgress {
    size_t cache = 0;
    uint64_t cursor = 0;
    std::vector<Key> keys{};  // dumped, not refreshed yet
    std::vector<Key> next{};  // dumped after them
    bool at_end = false;      // of the cache: there are no more
  };

  absl::StatusOr<size_t> RefreshKeys(const RowRefresh::Options& options, TimePoint until);
  absl::Status ChangedStep(LiveTable& live, Deadline deadline);
  bool needs_full() const { return full_is_wanted_ || need_ == Need::kAll; }
  absl::Status RunFull(Deadline deadline);
  absl::StatusOr<bool> FullStep(Deadline deadline);
  absl::Status RefreshDumped(LiveTable& live, Deadline deadline);
  absl::Status DumpNext(LiveTable& live, Deadline deadline);
  void GoToNextCache() { *full_ = {.cache = full_->cache + 1}; }
  void Finish(LiveTable& live, Deadline deadline);
  void UpdateNeed(const LiveTable& live);

  const Options options_;
  std::atomic<Need> need_{Need::kNothing};
  std::atomic<bool> full_is_wanted_{false};   // RefreshAll was called, and none has begun since
  std::atomic<bool> full_is_running_{false};  // the thread that sets it runs the full refresh
  std::atomic<uint64_t> rows_refreshed_{0};
  NotedKeys changed_;
  std::vector<int64_t> times_us_;  // publish times of changes that level 1 does not have yet
  std::optional<DumpProgress> full_;
};

}  // namespace hps
