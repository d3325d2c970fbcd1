// Applies changes to one table, and keeps the levels above level 3 up to date with them
// (ARCHITECTURE.md, "The life of a change"). It is the table's only writer besides promotions and
// switches.
//
// A change is applied in this order: open an apply epoch; raise the watermarks of its keys in
// levels 1 and 2; write level 3 (rows, deletes and positions, one atomic batch); write level 2;
// publish the epoch; note the keys for level 1. RefreshChanged brings level 1 up to date later.
//
// A table that is not loaded is written in level 3 only.
//
// Thread-safe. Every call holds the table's WriteLease (serving/model_registry.h) while it works,
// so calls run in turn, and never during a switch of the model. What is declared under "Of the
// holder of the lease" is guarded by that lease.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "base/limits.h"
#include "serving/model_registry.h"
#include "tier/durable_tier.h"
#include "update/freshness.h"
#include "update/row_refresh.h"

namespace hps {

class TableApplier {
 public:
  // How long changes of a stream took to reach each level.
  struct LevelFreshness {
    Freshness l1;
    Freshness l2;
    Freshness l3;
  };

  // All are borrowed. `freshness` may be null, and also `teams`, whose helpers refresh level 1.
  TableApplier(std::string table, ModelRegistry& registry, DurableStore& store,
               LevelFreshness* freshness = nullptr, ForkJoinPool* teams = nullptr)
      : table_(std::move(table)),
        registry_(registry),
        store_(store),
        freshness_(freshness),
        teams_(teams) {}
  TableApplier(const TableApplier&) = delete;
  TableApplier& operator=(const TableApplier&) = delete;

  const std::string& table() const { return table_; }

  // Rows to set or to delete, borrowed for the call. Of a key that occurs twice the last row
  // counts.
  struct DirectChange {
    uint32_t dim = 0;
    Dtype dtype = Dtype::kFloat32;
    std::span<const Key> keys;
    std::span<const std::byte> rows;  // [n, dim], packed; empty for a delete
    bool is_delete = false;
  };
  // Applies a change that comes from a caller, not from a stream. Its version is the next one of a
  // counter in level 3. When it returns, every lookup that begins later sees the change; level 1
  // is refreshed for it, or bypassed. The change is not yet synced to the disk.
  // Errors: NOT_FOUND (no such table), INVALID_ARGUMENT (dim, dtype or bytes), FAILED_PRECONDITION
  // (the table takes its changes from a stream or has an import id, or the store is read-only),
  // UNAVAILABLE (the model is being loaded, `deadline` has passed), RESOURCE_EXHAUSTED (the disk is
  // full). After an error of level 3 lookups may see the change until the process ends, or not; the
  // caller repeats it.
  absl::Status ApplyDirect(const DirectChange& change, Deadline deadline);

  // Records of a stream for one incarnation of the table: `write.upserts` have versions, and
  // `write.positions` lie behind them.
  struct StreamChange {
    Incarnation incarnation = 0;
    DurableWrite write{};
    std::span<const int64_t> publish_times_us{};  // of the messages, for the freshness
  };
  // Applies records of a stream. Level 1 follows with RefreshChanged. Errors: as ApplyDirect, with
  // FAILED_PRECONDITION if the table takes direct changes or has another incarnation.
  absl::Status ApplyStream(const StreamChange& change, Deadline deadline);

  // Brings level 1 up to date with the noted keys, in steps of about kRefreshStep. Between two
  // steps it lets a switch or a change in. Errors: UNAVAILABLE, those of DurableTable::Fetch; the
  // keys stay noted.
  absl::Status RefreshChanged(Deadline deadline);

  // Reads every key that level 1 holds from levels 2 and 3 and updates it in place. Errors: as
  // RefreshChanged, and FAILED_PRECONDITION if a full refresh of this table is running.
  absl::Status RefreshAll(Deadline deadline);

  // Whether RefreshChanged has something to do.
  bool needs_refresh() const { return needs_refresh_.load(std::memory_order_relaxed); }

  // Of so many workers of a store, those that help to refresh level 1; the others are left to
  // lookups.
  static size_t RefreshHelpers(size_t workers);

  struct Counts {
    uint64_t changes = 0;
    uint64_t rows_upserted = 0;
    uint64_t rows_deleted = 0;
    uint64_t changes_failed = 0;
    uint64_t rows_refreshed = 0;  // in level 1, counted once for each device
  };
  Counts counts() const;

  static constexpr Duration kRefreshStep = std::chrono::milliseconds(20);
  // Keys that a full refresh dumps at a time. A smaller dump costs more waits for the updates
  // before it; a larger one keeps the device's small copies of lookups waiting: 2 MiB take 40 us.
  static constexpr size_t kDumpKeys = size_t{256} << 10;
  // How long a cache that did not answer in time is left alone before it is cleared again: doubled
  // with each attempt that it does not answer either.
  static constexpr Duration kClearRestMin = std::chrono::seconds(1);
  static constexpr Duration kClearRestMax = std::chrono::seconds(30);
  // Keys that are noted for level 1; with more, all of level 1 is refreshed instead.
  static constexpr size_t kChangedKeysMax = size_t{1} << 20;
  // Publish times that are kept until level 1 has the changes; those beyond are not counted.
  static constexpr size_t kL1TimesMax = 4096;

 private:
  // How far a full refresh is; `cursor` is that of DeviceCacheTable::Dump.
  struct DumpProgress {
    bool begun = false;
    std::weak_ptr<LiveTable> live{};  // whose level 1 is refreshed
    size_t cache = 0;
    uint64_t cursor = 0;
    std::vector<Key> keys{};  // dumped, not refreshed yet
    std::vector<Key> next{};  // dumped after them
    bool at_end = false;      // of the cache: there are no more
    bool done = false;
  };
  // Keys whose watermarks a level lacks. Until it has them, promotions could bring old rows.
  struct UnraisedKeys {
    std::vector<Key> keys;
    bool overflowed = false;  // the level is bypassed for good, and no key is noted
  };

  // A cache that did not answer in time when it was to be cleared.
  struct ClearRest {
    Duration length{};  // 0: it has answered
    TimePoint until{};
  };

  absl::StatusOr<DurableTable*> Open(const WriteLease& lease);
  absl::Status ReadPositions(DurableTable& l3);
  absl::Status Change(LiveTable* live, DurableTable& l3, const DurableWrite& write);
  absl::Status ChangeLevels(LiveTable& live, DurableTable& l3, const DurableWrite& write);
  void NoteL3();
  void NoteL2(const LiveTable& live);
  void Raise(LiveTable& live, ApplyEpoch epoch);
  void QuarantineL1(LiveTable& live, size_t cache);
  void QuarantineL2(L2Part& part);
  void Quarantine(LevelHealth& health, std::string_view level);
  void WriteL2(LiveTable& live, const DurableWrite& write, bool written);
  absl::Status WritePart(LossyTable& part, const DurableWrite& write, bool written) const;
  void NoteChanged(const LiveTable& live);
  static void NoteUnraised(std::span<const Key> keys, UnraisedKeys& unraised);
  void ClearLevels(LiveTable& live);
  void ClearL1(LiveTable& live, size_t cache);
  void ClearL2(LiveTable& live, size_t number);
  absl::Status EmptyL1(DeviceCacheTable& l1, size_t cache, ApplyEpoch epoch);
  absl::Status RefreshStep(LiveTable& live, Deadline deadline);
  absl::StatusOr<size_t> RefreshKeys(const RowRefresh::Options& options, TimePoint until);
  absl::Status RefreshDirect(LiveTable& live, Deadline deadline);
  void FlushL1(LiveTable& live, Deadline deadline);
  absl::Status GoOnWithFull(Deadline deadline);
  void BeginFull();
  absl::Status RunFull(Deadline deadline);
  absl::Status FullRefreshStep(DumpProgress& progress, Deadline deadline);
  absl::Status RefreshDumped(LiveTable& live, DumpProgress& progress, Deadline deadline);
  static void GoToNextCache(DumpProgress& progress);
  static absl::Status DumpNext(LiveTable& live, DumpProgress& progress, Deadline deadline);
  void NoteRefreshed(LiveTable& live);
  void UpdateNeed(LiveTable& live);

  const std::string table_;
  ModelRegistry& registry_;
  DurableStore& store_;
  LevelFreshness* const freshness_;
  ForkJoinPool* const teams_;
  std::atomic<bool> needs_refresh_{false};
  std::atomic<bool> overflowed_{false};      // more than kChangedKeysMax: refresh everything
  std::atomic<bool> refreshing_all_{false};  // the thread that sets it owns `full_`
  std::atomic<bool> full_is_open_{false};    // `full_` has begun and is not done
  DumpProgress full_;
  std::atomic<uint64_t> changes_{0};
  std::atomic<uint64_t> rows_upserted_{0};
  std::atomic<uint64_t> rows_deleted_{0};
  std::atomic<uint64_t> changes_failed_{0};
  std::atomic<uint64_t> rows_refreshed_{0};

  // Of the holder of the lease:
  std::weak_ptr<LiveTable> live_;           // whose levels the members below describe
  std::unique_ptr<DurableTable> unloaded_;  // the table while it is not loaded
  Incarnation incarnation_ = 0;             // whose positions are known
  enum class Source { kNone, kDirect, kStream } source_ = Source::kNone;
  bool has_import_id_ = false;
  uint64_t next_direct_ = 1;
  std::vector<Key> keys_;                        // of the present change
  std::vector<Key> changed_;                     // to refresh in level 1
  std::span<const int64_t> publish_times_us_{};  // of the present change
  std::vector<int64_t> l1_times_us_;  // publish times of changes that level 1 does not have yet
  std::vector<UnraisedKeys> l2_unraised_{kL2PartsMax};
  std::vector<UnraisedKeys> l1_unraised_{kCachesMax};
  std::vector<ClearRest> clear_rests_{kCachesMax};
};

}  // namespace hps
