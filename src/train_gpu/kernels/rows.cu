// The rows of one table, outside of steps: its index moved, rows listed, copied out and in, erased.
#include <cub/device/device_radix_sort.cuh>

#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/elements.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"
#include "train_gpu/kernels/key_index.cuh"

namespace hps {
namespace {

// A slot of an index, those of the marks' bucket included.
struct IndexSlot {
  Key key;
  uint64_t entry;
};

__device__ IndexSlot SlotAt(const TrainTableView& table, uint64_t i) {
  const KeyBucket& bucket = table.buckets[i / kBucketKeys];
  const uint32_t slot = i % kBucketKeys;
  if (i / kBucketKeys < table.bucket_count) return {bucket.keys[slot], bucket.entries[slot]};
  if (slot == 0) return {kEmptySlot, bucket.entries[0]};
  if (slot == 1) return {kErasedSlot, bucket.entries[1]};
  return {kEmptySlot, kNoEntry};
}

uint64_t SlotCount(const TrainTableView& table) { return (table.bucket_count + 1) * kBucketKeys; }

__global__ void MoveKernel(TrainTableView from, TrainTableView to, TrainTableCounters* counters) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= (from.bucket_count + 1) * kBucketKeys) return;
  const IndexSlot slot = SlotAt(from, i);
  if (slot.entry == kNoEntry) return;
  bool is_new = false;
  *ClaimEntry(to, slot.key, &is_new) = slot.entry;
  if (is_new) AddTogether(&counters->slots, 1);
}

__global__ void ListKernel(TableMemory memory, EntryFilter filter, KeyValues list,
                           uint32_t* count) {
  const TrainTableView& table = memory.table;
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= (table.bucket_count + 1) * kBucketKeys) return;
  const IndexSlot slot = SlotAt(table, i);
  if (filter.is_pending ? !IsPending(slot.entry) : !HasRow(slot.entry)) return;
  uint32_t value = PendingCount(slot.entry);
  if (!filter.is_pending) {
    value = LowerHalf(slot.entry);
    const RowRecord& record = memory.group.records[value];
    if (!filter.is_all && record.changed <= filter.change_after &&
        record.last_seen <= filter.seen_after)
      return;
  }
  const uint32_t at = AddTogether(count, 1);
  list.keys[at] = slot.key;
  list.values[at] = value;
}

// The values of a row that are copied: the vector; with state also the state and the accumulator.
struct CopiedRow {
  bool has_state;
  bool has_accumulator;
  uint32_t dim;
  uint32_t end;    // of the vector and the state behind it
  uint32_t width;  // values in all

  __device__ CopiedRow(const TrainGroupView& group, const RowCopy& copy)
      : has_state(copy.last_seen != nullptr),
        has_accumulator(has_state && group.optimizer.kind == OptimizerKind::kRowwiseAdagrad),
        dim(group.dim),
        end(dim + (has_state ? group.state_count : 0)),
        width(end + (has_accumulator ? 1 : 0)) {}
};

__global__ void CopyOutKernel(TrainGroupView group, const uint32_t* rows, uint32_t count,
                              uint32_t flag, RowCopy to) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warps = gridDim.x * (blockDim.x / kWarpLanes);
  const CopiedRow copied(group, to);
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpLanes; i < count; i += warps) {
    RowRecord& record = group.records[rows[i]];
    std::byte* const row = RowAt(group, rows[i]);
    float* const values = to.values + uint64_t{i} * copied.width;
    for (uint32_t j = lane; j < copied.end; j += kWarpLanes) {
      values[j] =
          j < copied.dim ? Load<float>(row, j, group.dtype) : StateOf(group, row)[j - copied.dim];
    }
    if (lane != 0) continue;
    if (flag != 0) record.updates |= flag;
    if (!copied.has_state) continue;
    if (copied.has_accumulator) values[copied.end] = record.accumulator;
    to.last_seen[i] = record.last_seen;
    to.updates[i] = record.updates & kUpdatesMax;
  }
}

__global__ void CopyInKernel(TrainGroupView group, const uint32_t* rows, uint32_t count,
                             RowCopy from) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warps = gridDim.x * (blockDim.x / kWarpLanes);
  const CopiedRow copied(group, from);
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpLanes; i < count; i += warps) {
    if (rows[i] == kNoDeviceRow) continue;
    RowRecord& record = group.records[rows[i]];
    std::byte* const row = RowAt(group, rows[i]);
    const float* const values = from.values + uint64_t{i} * copied.width;
    for (uint32_t j = lane; j < copied.dim; j += kWarpLanes)
      StoreNearest(row, j, values[j], group.dtype);
    for (uint32_t j = copied.dim + lane; j < copied.end; j += kWarpLanes)
      StateOf(group, row)[j - copied.dim] = values[j];
    if (lane != 0) continue;
    record.changed = from.change;
    record.last_seen = copied.has_state ? from.last_seen[i] : from.seen;
    if (!copied.has_state) continue;
    if (copied.has_accumulator) record.accumulator = values[copied.end];
    record.updates =
        (record.updates & ~kUpdatesMax) | kEntryPublished | min(from.updates[i], kUpdatesMax);
  }
}

__global__ void PendingKernel(TableMemory memory, KeyValues list, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  bool is_new = false;
  uint64_t* const entry = ClaimEntry(memory.table, list.keys[i], &is_new);
  if (entry == nullptr) {
    StoreRelaxed(&memory.problems[kIndexFull], 1u);
    return;
  }
  if (is_new) AddTogether(&memory.counters->slots, 1);
  if (HasRow(*entry)) return;
  if (!IsPending(*entry)) AddTogether(&memory.counters->pending, 1);
  *entry = EntryOf(0, kPendingBit | FlagsOf(*entry) | min(list.values[i], kPendingMax));
}

// A key that is listed twice is erased once.
__global__ void EraseKernel(TableMemory memory, const Key* keys, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint64_t* const entry = FindEntryAlone(memory.table, keys[i]);
  if (entry == nullptr) return;
  const uint64_t found = LoadRelaxed(entry);
  if (HasRow(found)) EraseEntry(memory, entry, keys[i], found);
}

__device__ uint64_t* EntryAt(const TrainTableView& table, uint64_t i) {
  return &table.buckets[i / kBucketKeys].entries[i % kBucketKeys];
}

__global__ void ExpireKernel(TableMemory memory, uint32_t step, uint64_t bucket_begin,
                             uint64_t bucket_count) {
  uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= (bucket_count + 1) * kBucketKeys) return;
  // The marks' bucket comes last, whatever the others are.
  const uint64_t marks = memory.table.bucket_count * kBucketKeys;
  i = i < bucket_count * kBucketKeys ? (bucket_begin * kBucketKeys + i) % marks
                                     : marks + i % kBucketKeys;
  const IndexSlot slot = SlotAt(memory.table, i);
  if (!HasRow(slot.entry)) return;
  const RowRecord& row = memory.group.records[LowerHalf(slot.entry)];
  if (IsExpired(memory.table, row, step))
    EraseEntry(memory, EntryAt(memory.table, i), slot.key, slot.entry);
}

__global__ void TakeErasedKernel(TableMemory memory, KeyValues list, uint32_t* count) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= (memory.table.bucket_count + 1) * kBucketKeys) return;
  const IndexSlot slot = SlotAt(memory.table, i);
  const uint32_t found = FlagsOf(slot.entry);
  if (found == 0) return;
  const uint32_t at = AddTogether(count, 1);
  list.keys[at] = slot.key;
  list.values[at] = found;
  uint64_t* const entry = EntryAt(memory.table, i);
  if (IsPending(slot.entry)) {
    *entry = slot.entry & ~uint64_t{kEntryFlags};
    return;
  }
  *entry = kNoEntry;
  EraseSlot(entry, slot.key);
}

__global__ void ForgetKernel(TableMemory memory, uint32_t count_max) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= (memory.table.bucket_count + 1) * kBucketKeys) return;
  const IndexSlot slot = SlotAt(memory.table, i);
  if (!IsPending(slot.entry) || PendingCount(slot.entry) > count_max) return;
  atomicSub(&memory.counters->pending, 1u);
  uint64_t* const entry = EntryAt(memory.table, i);
  const uint32_t flags = FlagsOf(slot.entry);
  *entry = flags == 0 ? kNoEntry : EntryOf(0, kErasedBit | flags);
  if (flags == 0) EraseSlot(entry, slot.key);
}

__global__ void AgeKernel(TrainGroupView group, const uint32_t* rows, uint32_t count,
                          uint32_t* ages) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) ages[i] = group.records[rows[i]].last_seen;
}

__global__ void HaveKernel(TrainTableView table, const Key* keys, uint32_t count, uint32_t* found) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint64_t* const entry = FindEntryAlone(table, keys[i]);
  found[i] = entry != nullptr && HasRow(*entry) ? 1 : 0;
}

LaunchShape OneEach(uint64_t count, cudaStream_t stream) {
  return {.blocks = Blocks(count, kThreads), .threads = kThreads, .stream = stream};
}

}  // namespace

cudaError_t MoveIndex(const TrainTableView& from, const TrainTableView& to,
                      TrainTableCounters* counters, cudaStream_t stream) {
  return LaunchKernel<MoveKernel>(OneEach(SlotCount(from), stream), from, to, counters);
}

cudaError_t ListEntries(const TableMemory& memory, const EntryFilter& filter, const KeyValues& list,
                        uint32_t* count, cudaStream_t stream) {
  return LaunchKernel<ListKernel>(OneEach(SlotCount(memory.table), stream), memory, filter, list,
                                  count);
}

cudaError_t SortScratchBytes(uint32_t count, size_t* bytes) {
  size_t by_key = 0;
  size_t by_age = 0;
  Key* const keys = nullptr;
  uint32_t* const values = nullptr;
  cudaError_t error =
      cub::DeviceRadixSort::SortPairs(nullptr, by_key, keys, keys, values, values, count);
  if (error == cudaSuccess)
    error = cub::DeviceRadixSort::SortPairs(nullptr, by_age, values, values, keys, keys, count);
  *bytes = std::max(by_key, by_age);
  return error;
}

cudaError_t SortByKey(const ListSort& sort, cudaStream_t stream) {
  size_t bytes = sort.scratch.size();
  return cub::DeviceRadixSort::SortPairs(sort.scratch.data(), bytes, sort.from.keys, sort.to.keys,
                                         sort.from.values, sort.to.values, sort.count, 0, 64,
                                         stream);
}

cudaError_t SortByAge(const TrainGroupView& group, const ListSort& sort, cudaStream_t stream) {
  const cudaError_t error = LaunchKernel<AgeKernel>(OneEach(sort.count, stream), group,
                                                    sort.from.values, sort.count, sort.ages);
  if (error != cudaSuccess) return error;
  size_t bytes = sort.scratch.size();
  return cub::DeviceRadixSort::SortPairs(sort.scratch.data(), bytes, sort.ages, sort.to.values,
                                         sort.from.keys, sort.to.keys, sort.count, 0, 32, stream);
}

cudaError_t CopyRowsOut(const TrainGroupView& group, std::span<const uint32_t> rows, uint32_t flag,
                        const RowCopy& to, cudaStream_t stream) {
  return LaunchKernel<CopyOutKernel>(OneEach(rows.size() * kWarpLanes, stream), group, rows.data(),
                                     static_cast<uint32_t>(rows.size()), flag, to);
}

cudaError_t CopyRowsIn(const TrainGroupView& group, std::span<const uint32_t> rows,
                       const RowCopy& from, cudaStream_t stream) {
  return LaunchKernel<CopyInKernel>(OneEach(rows.size() * kWarpLanes, stream), group, rows.data(),
                                    static_cast<uint32_t>(rows.size()), from);
}

cudaError_t WritePending(const TableMemory& memory, const KeyValues& list, uint32_t count,
                         cudaStream_t stream) {
  return LaunchKernel<PendingKernel>(OneEach(count, stream), memory, list, count);
}

cudaError_t EraseExpired(const TableMemory& memory, uint32_t step, uint64_t bucket_begin,
                         uint64_t bucket_count, cudaStream_t stream) {
  return LaunchKernel<ExpireKernel>(OneEach((bucket_count + 1) * kBucketKeys, stream), memory, step,
                                    bucket_begin, bucket_count);
}

cudaError_t EraseKeys(const TableMemory& memory, std::span<const Key> keys, cudaStream_t stream) {
  return LaunchKernel<EraseKernel>(OneEach(keys.size(), stream), memory, keys.data(),
                                   static_cast<uint32_t>(keys.size()));
}

cudaError_t TakeErased(const TableMemory& memory, const KeyValues& list, uint32_t* count,
                       cudaStream_t stream) {
  return LaunchKernel<TakeErasedKernel>(OneEach(SlotCount(memory.table), stream), memory, list,
                                        count);
}

cudaError_t ForgetPending(const TableMemory& memory, uint32_t count_max, cudaStream_t stream) {
  return LaunchKernel<ForgetKernel>(OneEach(SlotCount(memory.table), stream), memory, count_max);
}

cudaError_t HaveRows(const TrainTableView& table, std::span<const Key> keys, uint32_t* found,
                     cudaStream_t stream) {
  return LaunchKernel<HaveKernel>(OneEach(keys.size(), stream), table, keys.data(),
                                  static_cast<uint32_t>(keys.size()), found);
}

}  // namespace hps
