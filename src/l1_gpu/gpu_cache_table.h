// One table of a device's cache: slabs and rows in device memory, watermarks on the host.
//
// Writes are steps of the device's writer. The device counts their effects, and every write copies
// the counters to pinned memory, so that statistics cost lookups nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "gpu/cuda_resources.h"
#include "l1_gpu/kernels/slab.h"
#include "l1_gpu/writer.h"
#include "tier/device_cache.h"

namespace hps {

class GpuCacheTable final : public DeviceCacheTable {
 public:
  // Device memory of a table of `slab_count` slabs. UINT64_MAX if that exceeds 64 bits, or if the
  // kernels can't number so many slabs.
  static uint64_t BytesOf(size_t row_bytes, uint64_t slab_count);
  // The maximum number of slabs that fit; may be less than kSlabsMin.
  static uint64_t SlabsWithin(size_t row_bytes, uint64_t bytes_max);

  // The parts of the cache that a table uses. The cache outlives the table.
  struct Owner {
    Writer* writer = nullptr;
    WriteSequence* write_sequence = nullptr;
    // Waits until no returned lookup still uses the table; false if that can't be determined.
    std::function<bool()> wait_for_calls;
    // Returned when the memory is freed; leaked together with memory that a hung device may still
    // use.
    ByteBudget::Lease budget;
  };
  // Makes an empty table. Errors: RESOURCE_EXHAUSTED, INTERNAL, DEADLINE_EXCEEDED (the device
  // hangs); `owner` is not called then.
  static absl::StatusOr<std::unique_ptr<GpuCacheTable>> Create(size_t row_bytes,
                                                               uint32_t slab_count, Owner owner);
  ~GpuCacheTable() override;

  // For kernels launched now.
  TableView view() const;

  size_t row_bytes() const override { return view_.row_bytes; }
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
  enum class Change { kInsert, kUpdate, kErase };

  GpuCacheTable(const TableView& view, DeviceBuffer memory, PinnedBuffer counters, Owner owner);

  void Check(const RowBatch& batch) const;
  size_t KeysPerStep(size_t row_bytes) const;
  absl::StatusOr<uint64_t> InsertStep(const RowBatch& batch, ApplyEpoch epoch, Writer::Step step);
  // Launches a change of the keys and rows in the step's staging, laid out as in StepRoom.
  absl::Status Submit(Change change, Writer::Step step, size_t keys_room, size_t key_count,
                      Admission admission = Admission::kAlways);
  FrequencyWord* frequencies() const;  // on the device; behind the slabs
  absl::Status CopyCounters(cudaStream_t stream);
  absl::StatusOr<size_t> DumpSlabs(uint32_t begin, uint32_t end, std::span<Key> out,
                                   Deadline deadline);
  uint64_t Counter(const uint64_t TableCounters::*counter) const;
  absl::Status Counted(absl::Status status);

  const TableView view_;
  DeviceBuffer memory_;
  PinnedBuffer counters_;  // a copy of the device's counters, as of the last completed write
  Owner owner_;
  Fence fence_;
  std::atomic<uint64_t> last_insertion_step_{0};  // step number plus one; 0 = none
  // Progress of the current dump. Launches read and write it under the writer's lock, except that
  // the end of a dump may be seen late.
  std::atomic<uint32_t> dumped_slab_count_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> errors_{0};
};

}  // namespace hps
