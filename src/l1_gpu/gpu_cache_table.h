// One table of a device's cache: its slabs and rows in device memory, its watermarks on the host.
//
// Writes are steps of the device's writer; what they did is counted on the device, and a copy of
// the counts follows every write into pinned memory, so that statistics cost a lookup nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "l1_gpu/cuda_resources.h"
#include "l1_gpu/kernels/slab.h"
#include "l1_gpu/writer.h"
#include "tier/byte_budget.h"
#include "tier/device_cache.h"

namespace hps {

class GpuCacheTable final : public DeviceCacheTable {
 public:
  // What a table of `slab_count` slabs takes of the device's memory; UINT64_MAX when that does not
  // fit into 64 bits, or the slabs are more than the kernels can number.
  static uint64_t BytesOf(size_t row_bytes, uint64_t slab_count);
  // The most slabs that fit; may be fewer than kSlabsMin.
  static uint64_t SlabsWithin(size_t row_bytes, uint64_t bytes_max);

  // What a table needs of its cache, which outlives it.
  struct Owner {
    Writer* writer = nullptr;
    WriterGate* gate = nullptr;
    // Waits until no lookup that was returned uses the table any more; false when it can't tell.
    std::function<bool()> wait_for_calls;
    // Given back when the memory is free again; abandoned with memory that a device which hangs
    // may still use.
    ByteBudget::Lease budget;
  };
  // An empty table. Errors: RESOURCE_EXHAUSTED, INTERNAL, DEADLINE_EXCEEDED (the device hangs);
  // `owner` is not asked then.
  static absl::StatusOr<std::unique_ptr<GpuCacheTable>> Create(size_t row_bytes,
                                                               uint32_t slab_count, Owner owner);
  ~GpuCacheTable() override;

  // For kernels that are launched now.
  TableView view() const;

  size_t row_bytes() const override { return view_.row_bytes; }
  absl::StatusOr<uint64_t> Replace(const RowBatch& batch, ApplyEpoch epoch) override;
  absl::Status Update(const RowBatch& batch, Deadline deadline) override;
  absl::Status Erase(std::span<const Key> keys, Deadline deadline) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) override;
  absl::Status Clear() override;
  absl::Status Flush(Deadline deadline) override;
  LevelStatistics Statistics() const override;

 private:
  enum class Change { kReplace, kUpdate, kErase };

  GpuCacheTable(const TableView& view, DeviceBuffer memory, PinnedBuffer counters, Owner owner);

  absl::Status Validate(const RowBatch& batch) const;
  size_t KeysPerStep(size_t row_bytes) const;
  absl::StatusOr<uint64_t> ReplaceStep(const RowBatch& batch, ApplyEpoch epoch, Writer::Step step);
  // Launches a change of keys and rows that lie in the step's room as StepRoom says.
  absl::Status Submit(Change change, Writer::Step step, size_t keys_room, size_t key_count);
  absl::Status CopyCounters(cudaStream_t stream);
  absl::StatusOr<size_t> DumpSlabs(uint32_t begin, uint32_t end, std::span<Key> out,
                                   Deadline deadline);
  uint64_t Counter(const uint64_t TableCounters::*counter) const;
  absl::Status Counted(absl::Status status);

  const TableView view_;
  DeviceBuffer memory_;
  PinnedBuffer counters_;  // a copy of the device's, as of the last write that is done
  Owner owner_;
  Fence fence_;
  std::atomic<uint64_t> last_insertion_step_{0};  // its number plus one; 0 = none
  // How far the dump under way has come. Read and written by launches, under the writer's lock,
  // except that a dump's end may be seen late.
  std::atomic<uint32_t> dumped_slab_count_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> errors_{0};
};

}  // namespace hps
