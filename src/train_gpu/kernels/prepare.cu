// Prepare: keys to rows.
#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/arguments.cuh"
#include "train_gpu/kernels/elements.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"
#include "train_gpu/kernels/key_index.cuh"

namespace hps {
namespace {

constexpr uint32_t kStartThreads = 1024;
constexpr uint32_t kBagLanes = 4;

__global__ void WriteKernel(std::byte* to, Arguments arguments) { arguments.WriteTo(to); }

// Where the sorted positions and the sums of the groups are.
__device__ void DivideGroups(const TrainStepView& step) {
  uint64_t sums = 0;
  for (uint32_t g = 0; g < step.group_count; ++g) {
    StepGroup& group = step.groups[g];
    group.begin = step.starts[group.feature_begin];
    group.end = step.starts[group.feature_end];
    group.sums_begin = sums;
    sums += uint64_t{group.end - group.begin} * group.dim;
  }
}

// The keys of a feature, cut to those that there are.
__device__ uint32_t KeyCountOf(const TrainStepView& step, const FeatureView& feature,
                               uint64_t* begin) {
  if (step.batch.offsets == nullptr) {
    *begin = feature.bag_begin;
    return feature.bag_count;
  }
  const auto cut = [&step](int64_t offset) {
    return offset < 0
               ? 0u
               : static_cast<uint32_t>(min(offset, static_cast<int64_t>(step.batch.key_count)));
  };
  const uint32_t first = cut(step.batch.offsets[feature.bag_begin]);
  const uint32_t last = cut(step.batch.offsets[feature.bag_begin + feature.bag_count]);
  *begin = first;
  return last > first ? last - first : 0;
}

__device__ void Refuse(const TrainStepView& step, DeviceProblem problem) {
  step.found.counts->is_refused = 1;
  StoreRelaxed(&step.set.problems[problem], 1u);
}

// The host is told once of the offsets of a step, as far as possible.
__device__ void RefuseOffsets(const TrainStepView& step) {
  if (LoadRelaxed(&step.found.counts->has_bad_offsets) != 0) return;
  step.found.counts->has_bad_offsets = 1;
  Refuse(step, kBadOffsets);
}

// One block. Counts of earlier steps are cleared here too. `description`: of the step, from its
// features on, if it is short.
__global__ void StartKernel(TrainStepView step, Arguments description) {
  __shared__ uint32_t sums[kStartThreads];
  __shared__ uint32_t total;
  description.WriteTo(step.features);
  if (threadIdx.x == 0) {
    total = 0;
    step.starts[0] = 0;
    *step.found.counts = StepCounts{};
    if (step.batch.offsets != nullptr &&
        (step.batch.offsets[0] != 0 ||
         step.batch.offsets[step.batch.bag_count] != step.batch.key_count))
      RefuseOffsets(step);
  }
  for (uint32_t i = threadIdx.x; i < step.table_count; i += blockDim.x)
    step.found.table_missing[i] = 0;
  __syncthreads();
  for (uint32_t base = 0; base < step.feature_count; base += kStartThreads) {
    const uint32_t f = base + threadIdx.x;
    uint32_t count = 0;
    if (f < step.feature_count)
      count = KeyCountOf(step, step.features[f], &step.features[f].key_begin);
    sums[threadIdx.x] = count;
    __syncthreads();
    for (uint32_t reach = 1; reach < kStartThreads; reach *= 2) {
      const uint32_t add = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
      __syncthreads();
      sums[threadIdx.x] += add;
      __syncthreads();
    }
    // Of wrong offsets the sum may be anything; no position is beyond the keys.
    if (f < step.feature_count)
      step.starts[f + 1] = min(total + sums[threadIdx.x], step.batch.key_count);
    __syncthreads();
    if (threadIdx.x == 0) total = min(total + sums[kStartThreads - 1], step.batch.key_count);
    __syncthreads();
  }
  if (threadIdx.x == 0) DivideGroups(step);
}

// Checks the bags, and writes that of each position where they are wanted.
__global__ void BagKernel(TrainStepView step) {
  const uint32_t lane = threadIdx.x % kBagLanes;
  const uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) / kBagLanes;
  for (uint32_t f = blockIdx.y; f < step.feature_count; f += gridDim.y) {
    const FeatureView& feature = step.features[f];
    const uint32_t start = step.starts[f];
    const uint32_t count = step.starts[f + 1] - start;
    for (uint32_t bag = first; bag < feature.bag_count;
         bag += gridDim.x * (blockDim.x / kBagLanes)) {
      const int64_t begin = step.batch.offsets[feature.bag_begin + bag];
      const int64_t end = step.batch.offsets[feature.bag_begin + bag + 1];
      if (begin < 0 || begin > end || end > step.batch.key_count) {
        if (lane == 0) RefuseOffsets(step);
        continue;
      }
      if (step.found.bags == nullptr) continue;
      const int64_t key_begin = static_cast<int64_t>(feature.key_begin);
      for (int64_t i = begin - key_begin + lane; i < end - key_begin; i += kBagLanes) {
        if (i >= 0 && i < count) step.found.bags[start + i] = bag;
      }
    }
  }
}

// Notes that the step has the row at this position.
__device__ void SeeRow(const TrainStepView& step, const FeatureView& feature, uint32_t row,
                       uint32_t v) {
  RowRecord& record = step.set.groups[step.set.tables[feature.table].group].records[row];
  const uint64_t mine = EntryOf(step.number, ~v);
  // A hot row has had a lower position already, nearly always.
  if (LoadRelaxed(&record.order) >= mine) return;
  atomicMax(reinterpret_cast<unsigned long long*>(&record.order),
            static_cast<unsigned long long>(mine));
}

__device__ Key KeyAt(const TrainStepView& step, const FeatureView& feature, uint32_t f,
                     uint32_t v) {
  return step.batch.keys[feature.key_begin + (v - step.starts[f])];
}

__device__ bool HasExpired(const TrainStepView& step, const FeatureView& feature, uint32_t row) {
  const TrainTableView& table = step.set.tables[feature.table];
  return table.expire_after != 0 && IsExpired(table, step.set.groups[table.group].records[row],
                                              step.tables[feature.step_table].step);
}

// What a lane finds for its position.
__device__ void TakeFound(const TrainStepView& step, const FeatureView& feature, uint32_t v,
                          uint64_t entry, bool is_seen) {
  const bool has_row = HasRow(entry) && !HasExpired(step, feature, LowerHalf(entry));
  const uint32_t row = has_row ? LowerHalf(entry) : kNoDeviceRow;
  step.found.rows[v] = row;
  if (row != kNoDeviceRow) {
    if (is_seen) SeeRow(step, feature, row, v);
  } else if (step.new_rows != TrainStepView::NewRows::kNone && step.found.counts->is_refused == 0) {
    AddTogether(&step.found.table_missing[feature.step_table], 1);
    step.found.missing[AddTogether(&step.found.counts->missing, 1)] = v;
  }
}

// With wrong offsets no key is looked up: which ones are meant is not known. A lane has a position,
// and the quads of a warp look up the keys of eight of its lanes at a time.
__global__ void FindKernel(TrainStepView step, bool is_seen) {
  const bool is_refused = step.found.counts->has_bad_offsets != 0;
  const uint32_t total = step.starts[step.feature_count];
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t stride = gridDim.x * blockDim.x;
  for (uint32_t base = blockIdx.x * blockDim.x + threadIdx.x - lane; base < total; base += stride) {
    const uint32_t v = base + lane;
    const uint32_t f = FeatureAt(step, min(v, total - 1));
    const bool is_wanted = v < total && !is_refused;
    const Key key = is_wanted ? KeyAt(step, step.features[f], f, v) : 0;
    uint64_t own = kNoEntry;
#pragma unroll
    for (uint32_t round = 0; round < kQuadLanes; ++round) {
      const uint32_t from = round * (kWarpLanes / kQuadLanes) + lane / kQuadLanes;
      const TrainTableView& table =
          step.set.tables[step.features[__shfl_sync(kAllLanes, f, from)].table];
      const uint64_t* const entry = FindEntry(table, __shfl_sync(kAllLanes, key, from),
                                              __shfl_sync(kAllLanes, is_wanted, from));
      const uint64_t found = entry == nullptr ? kNoEntry : LoadRelaxed(entry);
      // Back to the lane whose position it is.
      const uint64_t of_lane = __shfl_sync(kAllLanes, found, lane * kQuadLanes % kWarpLanes);
      if (lane / (kWarpLanes / kQuadLanes) == round) own = of_lane;
    }
    if (v < total) TakeFound(step, step.features[f], v, own, is_seen);
  }
}

// Counts the key in its entry. True: for this thread, which makes the key's row. A row that has
// expired is erased first.
__device__ bool CountKey(const TrainStepView& step, const FeatureView& feature, uint64_t* entry) {
  const TrainTableView& table = step.set.tables[feature.table];
  TrainTableCounters& counters = step.set.table_counters[feature.table];
  const uint32_t step_number = step.tables[feature.step_table].step;
  uint64_t found = LoadRelaxed(entry);
  for (;;) {
    const bool had_row = HasRow(found);
    if (LowerHalf(found) == kRowComes) return false;
    if (had_row && !HasExpired(step, feature, LowerHalf(found))) return false;
    const bool was_pending = IsPending(found);
    const bool admits_all = step.new_rows == TrainStepView::NewRows::kAll;
    if (was_pending && UpperHalf(found) == step_number && !admits_all) return false;
    const uint32_t count = (was_pending ? PendingCount(found) : 0) + 1;
    const bool is_admitted = admits_all || count >= table.admit_after;
    const TrainGroupView& group = step.set.groups[table.group];
    const uint32_t flags =
        had_row ? group.records[LowerHalf(found)].updates & kEntryFlags : FlagsOf(found);
    const uint64_t next = is_admitted
                              ? EntryOf(flags, kRowComes)
                              : EntryOf(step_number, kPendingBit | flags | min(count, kPendingMax));
    const uint64_t before =
        atomicCAS(reinterpret_cast<unsigned long long*>(entry),
                  static_cast<unsigned long long>(found), static_cast<unsigned long long>(next));
    if (before == found) {
      if (had_row) FreeRow(group, counters, step.set.group_counters[table.group], LowerHalf(found));
      if (is_admitted && flags != 0) atomicSub(&counters.noted, 1u);
      if (was_pending && is_admitted) atomicSub(&counters.pending, 1u);
      if (!was_pending && !is_admitted) AddTogether(&counters.pending, 1);
      return is_admitted;
    }
    found = before;
  }
}

__global__ void ClaimKernel(TrainStepView step) {
  const uint32_t count = step.found.counts->missing;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const uint32_t v = step.found.missing[i];
    const uint32_t f = FeatureAt(step, v);
    const FeatureView& feature = step.features[f];
    const TrainTableView& table = step.set.tables[feature.table];
    TrainTableCounters& counters = step.set.table_counters[feature.table];
    bool is_new = false;
    uint64_t* const entry = ClaimEntry(table, KeyAt(step, feature, f, v), &is_new);
    step.found.entries[i] = entry;
    if (entry == nullptr) {
      Refuse(step, kIndexFull);
      continue;
    }
    if (is_new) AddTogether(&counters.slots, 1);
    if (CountKey(step, feature, entry))
      step.found.created[AddTogether(&step.found.counts->created, 1)] = i;
  }
}

// A row of the group that no key has.
__device__ uint32_t TakeRow(const TrainGroupView& group, TrainGroupCounters& counters) {
  if (static_cast<int32_t>(LoadRelaxed(reinterpret_cast<uint32_t*>(&counters.free))) > 0) {
    const int32_t free = atomicSub(&counters.free, 1);
    if (free > 0) return group.free_rows[free - 1];
    atomicAdd(&counters.free, 1);
  }
  return AddTogether(&counters.taken, 1);
}

// All lanes of a warp write a new row's values.
__device__ void FillRow(const TrainGroupView& group, const TrainTableView& table, uint32_t row,
                        Key key, uint32_t lane) {
  std::byte* const at = RowAt(group, row);
  const auto write = [&](uint32_t i, uint64_t bits) {
    StoreNearest(at, i, InitialValue(table.initializer, static_cast<uint32_t>(bits)), group.dtype);
  };
  const uint64_t state = HashKey(key, table.initializer.seed);
  for (uint32_t i = 2 * lane; i < group.dim; i += 2 * kWarpLanes) {
    const uint64_t bits = InitialBits(state, i / 2);
    write(i, bits);
    if (i + 1 < group.dim) write(i + 1, bits >> 32);
  }
  // Accumulators come before what begins with 0 (InitializeState).
  const OptimizerKind kind = group.optimizer.kind;
  const bool has_accumulators = kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kFtrl;
  for (uint32_t i = lane; i < group.state_count; i += kWarpLanes) {
    StateOf(group, at)[i] =
        has_accumulators && i < group.dim ? group.optimizer.initial_accumulator : 0.0f;
  }
}

// Takes rows that ClaimKernel has freed, so that it is a kernel of its own. A warp makes 32 rows:
// their numbers by a lane each, their values by all lanes.
__global__ void CreateKernel(TrainStepView step) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpLanes;
  const uint32_t count = step.found.counts->created;
  for (uint32_t base = warp * kWarpLanes; base < count; base += gridDim.x * blockDim.x) {
    uint32_t row = 0, table_number = 0;
    Key key = 0;
    if (base + lane < count) {
      const uint32_t i = step.found.created[base + lane];
      const uint32_t v = step.found.missing[i];
      const uint32_t f = FeatureAt(step, v);
      const FeatureView& feature = step.features[f];
      table_number = feature.table;
      key = KeyAt(step, feature, f, v);
      const uint32_t group_number = step.set.tables[table_number].group;
      const TrainGroupView& group = step.set.groups[group_number];
      row = TakeRow(group, step.set.group_counters[group_number]);
      AddTogether(&step.set.table_counters[table_number].rows, 1);
      group.records[row] = {.key = key,
                            .order = 0,
                            .last_seen = step.tables[feature.step_table].step,
                            .changed = step.tables[feature.step_table].change,
                            .updates = kRowLive | FlagsOf(*step.found.entries[i]),
                            .accumulator = group.optimizer.initial_accumulator};
      *step.found.entries[i] = EntryOf(0, row);
    }
    __syncwarp();
    for (uint32_t j = 0; j < min(kWarpLanes, count - base); ++j) {
      const TrainTableView& table = step.set.tables[__shfl_sync(kAllLanes, table_number, j)];
      FillRow(step.set.groups[table.group], table, __shfl_sync(kAllLanes, row, j),
              __shfl_sync(kAllLanes, key, j), lane);
    }
  }
}

__global__ void ResolveKernel(TrainStepView step) {
  const uint32_t count = step.found.counts->missing;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const uint64_t entry = step.found.entries[i] == nullptr ? kNoEntry : *step.found.entries[i];
    if (!HasRow(entry)) continue;
    const uint32_t v = step.found.missing[i];
    step.found.rows[v] = LowerHalf(entry);
    SeeRow(step, step.features[FeatureAt(step, v)], LowerHalf(entry), v);
  }
}

}  // namespace

cudaError_t WriteToDevice(std::byte* to, std::span<const std::byte> bytes, cudaStream_t stream) {
  for (size_t at = 0; at < bytes.size(); at += Arguments::kBytesMax) {
    const auto part = bytes.subspan(at, std::min(bytes.size() - at, Arguments::kBytesMax));
    const cudaError_t error = LaunchKernel<WriteKernel>(
        {.blocks = 1, .threads = 256, .stream = stream}, to + at, Arguments::Of(part));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t StartPositions(const TrainStepView& step, std::span<const std::byte> description,
                           uint32_t bags_max, cudaStream_t stream) {
  auto* const features = static_cast<std::byte*>(static_cast<void*>(step.features));
  cudaError_t error = cudaSuccess;
  if (description.size() > Arguments::kBytesMax) {
    error = WriteToDevice(features, description, stream);
    description = {};
  }
  if (error != cudaSuccess) return error;
  error = LaunchKernel<StartKernel>({.blocks = 1, .threads = kStartThreads, .stream = stream}, step,
                                    Arguments::Of(description));
  if (error != cudaSuccess || step.batch.offsets == nullptr) return error;
  return LaunchKernel<BagKernel>({.blocks = Blocks(bags_max, kThreads / kBagLanes),
                                  .threads = kThreads,
                                  .stream = stream,
                                  .rows = std::min(step.feature_count, kGridRowsMax)},
                                 step);
}

cudaError_t FindRows(const TrainStepView& step, bool is_seen, cudaStream_t stream) {
  return LaunchKernel<FindKernel>(
      {.blocks = Blocks(step.batch.key_count, kThreads), .threads = kThreads, .stream = stream},
      step, is_seen);
}

cudaError_t ClaimEntries(const TrainStepView& step, cudaStream_t stream) {
  return LaunchKernel<ClaimKernel>(FewBlocks(step.batch.key_count, stream), step);
}

cudaError_t CreateRows(const TrainStepView& step, cudaStream_t stream) {
  return LaunchKernel<CreateKernel>(FewBlocks(step.batch.key_count, stream), step);
}

cudaError_t ResolveRows(const TrainStepView& step, cudaStream_t stream) {
  return LaunchKernel<ResolveKernel>(FewBlocks(step.batch.key_count, stream), step);
}

}  // namespace hps
