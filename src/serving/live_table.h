// One incarnation of one table as it is served: its schema, its default row and its levels.
//
// The composition makes a LiveTable. It belongs to the model snapshots that name it, and is carried
// over from one snapshot to the next while its incarnation stays the same. It is freed,
// with its level handles (L2's pages, L3's pinned column family), when the last of those snapshots
// has been reclaimed: never on the read path.
//
// Immutable, except for its atomic members: the apply epoch, the health of its levels, whether it
// is retired, and the L1 tables. Those are attached later, because an L1 has no memory for two
// incarnations: the new one gets its share when the old one has returned it. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/limits.h"
#include "hps/table_spec.h"
#include "serving/l2_part.h"
#include "serving/level_health.h"
#include "tier/device_cache.h"
#include "tier/direct_rows.h"
#include "tier/durable_tier.h"
#include "tier/fence.h"
#include "tier/shared_table.h"

namespace hps {

class LiveTable {
 public:
  struct Parts {
    std::unique_ptr<DurableTable> l3;  // gives the schema and the incarnation
    std::vector<L2Part::Opened> l2{};  // in the order in which they are asked; empty: no L2
    double hit_rate_threshold = 1.0;   // where a request names none
  };

  // REQUIRES: an L3, at most kL2PartsMax parts of L2, and a threshold in [0, 1].
  explicit LiveTable(Parts parts);
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;

  const TableSpec& spec() const { return spec_; }
  Incarnation incarnation() const { return incarnation_; }
  double hit_rate_threshold() const { return hit_rate_threshold_; }
  size_t row_bytes() const { return default_row_.size(); }

  // In the table's dtype, and the same converted.
  std::span<const std::byte> default_row() const { return default_row_; }
  std::span<const std::byte> default_row_float32() const { return default_row_float32_; }

  DurableTable& l3() const { return *l3_; }
  // Its parts, in the order in which they are asked.
  std::deque<L2Part>& l2() { return l2_; }
  const std::deque<L2Part>& l2() const { return l2_; }
  // The first part of L2, if devices can read it; else null.
  DirectReadable* l2_direct() const { return l2_.empty() ? nullptr : l2_.front().table().direct(); }
  // The part of L2 that several nodes share; null: this node has its L2 for itself.
  SharedTable* shared() const;

  // The table in the cache number `cache` of SessionFactory::Options::caches; null while there is
  // none. A pointer once got stays valid as long as this LiveTable.
  DeviceCacheTable* l1(size_t cache) const {
    return l1_[cache].table.load(std::memory_order_seq_cst);
  }

  // Promotions older than this are not for that L1: it was attached after changes that its
  // watermarks don't know of.
  ApplyEpoch l1_epoch(size_t cache) const {
    return l1_[cache].epoch.load(std::memory_order_seq_cst);
  }

  // Gives the table its part of a cache; calls that begin later use it. `device` is the cache's,
  // for the log. REQUIRES: cache < kCachesMax, none attached there yet.
  void AttachL1(size_t cache, std::unique_ptr<DeviceCacheTable> table, int device = -1);
  // REQUIRES: l1(cache) was not null.
  int l1_device(size_t cache) const { return l1_[cache].device; }

  // For promotions and for the table's applier.
  ApplyEpochs& epochs() { return epochs_; }
  // Whether lookups may use the L1. The applier notes there what it has applied to it.
  LevelHealth& l1_health(size_t cache) { return *l1_[cache].health; }
  const LevelHealth& l1_health(size_t cache) const { return *l1_[cache].health; }

  // True once the table's model has switched to snapshots without it: promotions into it are
  // dropped, and its level 2 is not pinned any more, if it is not yet.
  bool retired() const { return retired_.load(std::memory_order_relaxed); }
  void Retire() {
    retired_.store(true, std::memory_order_relaxed);
    if (DirectReadable* const l2 = l2_direct()) l2->StopPinning();
  }

 private:
  struct CacheSlot {
    std::atomic<DeviceCacheTable*> table{nullptr};
    std::atomic<ApplyEpoch> epoch{UINT64_MAX};
    std::unique_ptr<DeviceCacheTable> owned;
    int device = -1;
    std::unique_ptr<LevelHealth> health;
  };

  const TableSpec spec_;
  const Incarnation incarnation_;
  const double hit_rate_threshold_;
  std::vector<std::byte> default_row_;
  std::vector<std::byte> default_row_float32_;
  ApplyEpochs epochs_;
  std::atomic<bool> retired_{false};
  const std::unique_ptr<DurableTable> l3_;
  std::deque<L2Part> l2_;  // does not grow
  std::array<CacheSlot, kCachesMax> l1_;
};

}  // namespace hps
