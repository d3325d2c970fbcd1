// One table of the host's device cache: the slab model behind one mutex.
//
// Queries and writes take the mutex for one key at a time. A reader waits for at most one row copy
// (two, if an insertion moves a resident) and never sees a torn row. Every operation completes at
// once: deadlines are ignored, and Flush has nothing to wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "base/mutex.h"
#include "testing/host_device_cache/slab_table.h"
#include "tier/admission.h"
#include "tier/device_cache.h"

namespace hps {

class HostCacheTable final : public DeviceCacheTable {
 public:
  // The budget of a table of `slab_count` slabs: slabs, rows, watermarks and the object; UINT64_MAX
  // if that exceeds 64 bits.
  static uint64_t BytesOf(size_t row_bytes, uint64_t slab_count);
  // The maximum number of slabs that fit; may be less than SlabTable::kSlabsMin.
  static uint64_t SlabsWithin(size_t row_bytes, uint64_t bytes_max);

  // `budget` is a lease of BytesOf bytes, held until the table is destroyed. Errors:
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<HostCacheTable>> Create(size_t row_bytes, size_t slab_count,
                                                                ByteBudget::Lease budget);

  // Copies the row of a held key to `row`, which has row_bytes() bytes, and marks it as used.
  // Returns whether the key was held; otherwise `row` is left unchanged.
  bool Read(Key key, std::byte* row) const;

  size_t row_bytes() const override { return row_bytes_; }
  absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) override;
  absl::Status Update(const RowBatch& batch, Deadline deadline) override;
  absl::Status UpdateFrom(size_t keys_max, const FillUpdate& fill, Deadline deadline) override;
  absl::Status Erase(std::span<const Key> keys, Deadline deadline) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) override;
  absl::Status Clear() override;
  absl::Status Flush(Deadline deadline) override;
  LevelStatistics Statistics() const override;

 private:
  HostCacheTable(SlabTable slabs, ByteBudget::Lease budget);
  void Check(const RowBatch& batch) const;
  void InsertOne(Key key, std::span<const std::byte> row, Admission admission) HPS_REQUIRES(mutex_);

  const size_t row_bytes_;
  const uint64_t bytes_;
  const ByteBudget::Lease budget_;
  Fence fence_;
  mutable Mutex mutex_;
  mutable SlabTable slabs_
      HPS_GUARDED_BY(mutex_);                   // mutable: a lookup stamps the rows that it finds
  std::vector<FrequencyWord> frequency_words_;  // not part of the budget
  FrequencySketch frequencies_ HPS_GUARDED_BY(mutex_);
  LevelStatistics statistics_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
