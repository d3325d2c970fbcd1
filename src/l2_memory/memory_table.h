// One table of the in-process level 2: partitions by key hash over one block of pages.
//
// With a pinner, the block is pinned when half of the rows have come, and devices may read it from
// then on. Earlier, memory that may never be needed would become resident.
//
// A write takes the lock of the key's partition for each key. Reads use the partitions' views under
// an epoch guard, see memory_fetch.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/epoch.h"
#include "l2_memory/memory_fetch.h"
#include "l2_memory/page_allocator.h"
#include "l2_memory/partition.h"
#include "l2_memory/reader_pool.h"
#include "l2_memory/table_layout.h"
#include "tier/direct_rows.h"
#include "tier/fence.h"
#include "tier/host_memory_pinner.h"
#include "tier/lossy_tier.h"

namespace hps {

class MemoryTable final : public LossyTable, public DirectReadable {
 public:
  struct Parts {
    std::shared_ptr<PageAllocator> pages;
    FetchFunction fetch = nullptr;       // FetchFunctionForMachine() except in tests
    HostMemoryPinner* pinner = nullptr;  // null: devices do not read the table
  };
  // Errors: RESOURCE_EXHAUSTED if the system lacks the memory.
  static absl::StatusOr<std::unique_ptr<LossyTable>> Create(const TableLayout& layout,
                                                            uint64_t bytes_max, Parts parts);
  ~MemoryTable() override;

  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override;
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override;
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override;
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  absl::Status Clear() override;
  LevelStatistics Statistics() const override;
  bool can_block() const override { return false; }
  DirectReadable* direct() override { return this; }

  std::optional<size_t> BeginDirectReads() override;
  void EndDirectReads(size_t reads) override;
  const DirectRows& direct_rows() const override { return direct_rows_; }
  void StopPinning() override { pinning_.region.wanted.store(false, std::memory_order_relaxed); }

 private:
  MemoryTable(const TableLayout& layout, uint64_t bytes_max, Parts parts,
              std::unique_ptr<PageBlock> block);
  DirectRows MakeDirectRows() const;
  void PinOnceHalfFull(uint64_t inserted);
  Partition::HashedKey Hashed(Key key) const;
  Partition& PartitionOf(Partition::HashedKey key) const;
  // Prefetches the index lines of the keys.
  void PrefetchLines(std::span<const Key> keys) const;
  void CheckBatch(const RowBatch& batch) const;
  uint64_t BytesTouched(std::span<const uint64_t> touched_slots, bool sketched) const;

  const FetchFunction fetch_;
  const TableLayout layout_;
  const uint64_t bytes_max_;
  const std::shared_ptr<PageAllocator> pages_;
  const std::unique_ptr<PageBlock> block_;
  struct {
    HostMemoryPinner* const pinner;  // null: devices do not read the table
    PinnedRegion region;
    std::atomic<uint64_t> inserted{0};
    std::atomic<bool> begun{false};
  } pinning_;
  const DirectRows direct_rows_;
  Fence fence_;
  EpochDomain domain_;
  ReaderPool readers_;
  const std::unique_ptr<std::atomic<uint8_t>[]> ticks_;
  const std::unique_ptr<PartitionView[]> views_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  std::atomic<uint64_t> refused_{0};
};

}  // namespace hps
