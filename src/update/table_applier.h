// Applies changes to one table (ARCHITECTURE.md, "The life of a change"). It is the table's only
// writer besides promotions and switches.
//
// A change is applied in this order: open an apply epoch; raise the watermarks of its keys in
// levels 1 and 2; write level 3 (rows, deletes and positions, one atomic batch); write level 2;
// publish the epoch; refresh level 1 or note the keys for it (update/l1_refresh.h). A level that
// fails is repaired later (update/level_repair.h) and fails no change.
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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "serving/model_registry.h"
#include "tier/durable_tier.h"
#include "update/freshness.h"
#include "update/l1_refresh.h"
#include "update/level_repair.h"

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
        levels_(table_),
        refresh_({.table = table_,
                  .acquire = [this](Deadline deadline) { return Acquire(deadline); },
                  .levels = &levels_,
                  .freshness = freshness == nullptr ? nullptr : &freshness->l1,
                  .teams = teams}) {}
  TableApplier(const TableApplier&) = delete;
  TableApplier& operator=(const TableApplier&) = delete;

  const std::string& table() const { return table_; }

  // Rows to set or to delete, borrowed for the call. Of a key that occurs twice the last row
  // counts.
  struct DirectChange {
    uint32_t dim = 0;
    Dtype dtype = Dtype::kFloat32;  // float32 becomes the nearest values of the table's type
    std::span<const Key> keys;
    std::span<const std::byte> rows;  // [n, dim], packed; empty for a delete
    bool is_delete = false;
  };
  // Applies a change that comes from a caller, not from a stream. Its version is the next one of a
  // counter in level 3. When it returns, every lookup that begins later sees the change; level 1
  // is refreshed for it, or bypassed. The change is not yet synced to the disk.
  // Errors: NOT_FOUND (no such table), INVALID_ARGUMENT (dim, dtype, bytes, values beyond the
  // type), FAILED_PRECONDITION (the table takes its changes from a stream or has an import id, or
  // the store is read-only), UNAVAILABLE (the model is being loaded, `deadline` has passed),
  // RESOURCE_EXHAUSTED (the disk is full). After an error of level 3 lookups may see the change
  // until the process ends, or not; the caller repeats it.
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

  // See L1Refresh. Errors of Options::acquire: UNAVAILABLE, those of DurableStore::OpenTable.
  bool needs_refresh() const { return refresh_.is_needed(); }
  absl::Status RefreshChanged(Deadline deadline) { return refresh_.RefreshChanged(deadline); }
  absl::Status RefreshAll(Deadline deadline) { return refresh_.RefreshAll(deadline); }

  struct Counts {
    uint64_t changes = 0;
    uint64_t rows_upserted = 0;
    uint64_t rows_deleted = 0;
    uint64_t changes_failed = 0;
    uint64_t rows_refreshed = 0;  // in level 1, counted once for each device
  };
  Counts counts() const;

 private:
  // Where the changes of one incarnation come from, as level 3 says it.
  struct Source {
    Incarnation incarnation = 0;  // 0: not known yet
    enum class Kind { kNone, kDirect, kStream } kind = Kind::kNone;
    bool has_import_id = false;
    uint64_t next_direct = 1;  // number of the next direct change
  };

  absl::StatusOr<WriteLease> Acquire(Deadline deadline);
  DurableTable& L3Of(const WriteLease& lease) const {
    return lease.live() == nullptr ? *unloaded_ : lease.live()->l3();
  }
  static absl::StatusOr<Source> SourceOf(DurableTable& l3);
  absl::Status Change(const WriteLease& lease, const DurableWrite& write,
                      std::span<const int64_t> publish_times_us = {});
  absl::Status ChangeLevels(LiveTable& live, const DurableWrite& write,
                            std::span<const int64_t> publish_times_us);
  absl::Status WriteL3(DurableTable& l3, const DurableWrite& write,
                       std::span<const int64_t> publish_times_us);
  void WriteL2(LiveTable& live, const DurableWrite& write, bool written);
  absl::Status WritePart(LossyTable& part, const DurableWrite& write, bool written) const;

  const std::string table_;
  ModelRegistry& registry_;
  DurableStore& store_;
  LevelFreshness* const freshness_;
  std::atomic<uint64_t> changes_{0};
  std::atomic<uint64_t> rows_upserted_{0};
  std::atomic<uint64_t> rows_deleted_{0};
  std::atomic<uint64_t> changes_failed_{0};

  // Of the holder of the lease:
  LevelRepair levels_;
  L1Refresh refresh_;                       // its refreshes take the lease themselves
  std::weak_ptr<LiveTable> live_;           // whose levels `levels_` and `refresh_` describe
  std::unique_ptr<DurableTable> unloaded_;  // the table while it is not loaded
  Source source_;
  std::vector<Key> keys_;  // of the present change
};

}  // namespace hps
