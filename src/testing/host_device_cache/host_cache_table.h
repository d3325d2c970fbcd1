// One table of the host's device cache: the slab model behind one mutex.
//
// Queries and writes take the mutex for one key at a time, so no reader waits for more than a
// row's copy (two, when an insertion moves a resident) and none can see a torn row. Everything
// completes at once: deadlines are not looked at, and Flush has nothing to wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "testing/host_device_cache/slab_table.h"
#include "tier/byte_budget.h"
#include "tier/device_cache.h"

namespace hps {

class HostCacheTable final : public DeviceCacheTable {
 public:
  // What a table of `slab_count` slabs takes of the budget: slabs, rows, watermarks and itself;
  // UINT64_MAX when that does not fit into 64 bits.
  static uint64_t BytesOf(size_t row_bytes, uint64_t slab_count);
  // The most slabs that fit; may be fewer than SlabTable::kSlabsMin.
  static uint64_t SlabsWithin(size_t row_bytes, uint64_t bytes_max);

  // `budget` holds what BytesOf says, until the table dies. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<HostCacheTable>> Create(size_t row_bytes, size_t slab_count,
                                                                ByteBudget::Lease budget);

  // Copies the row of a held key to `row`, which has row_bytes() bytes, and marks it as used.
  // Returns whether it was held; `row` is left untouched otherwise.
  bool Read(Key key, std::byte* row) const;

  size_t row_bytes() const override { return row_bytes_; }
  absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) override;
  absl::Status Update(const RowBatch& batch, Deadline deadline) override;
  absl::Status Erase(std::span<const Key> keys, Deadline deadline) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) override;
  absl::Status Clear() override;
  absl::Status Flush(Deadline deadline) override;
  LevelStatistics Statistics() const override;

 private:
  HostCacheTable(SlabTable slabs, ByteBudget::Lease budget);
  absl::Status Validate(const RowBatch& batch) const;

  const size_t row_bytes_;
  const uint64_t bytes_;
  const ByteBudget::Lease budget_;
  Fence fence_;
  mutable Mutex mutex_;
  mutable SlabTable slabs_ HPS_GUARDED_BY(mutex_);  // mutable: a lookup stamps what it finds
  LevelStatistics statistics_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
