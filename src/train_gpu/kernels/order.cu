// The order of a step's positions: by the first position of their rows, stable.
//
// Not by the rows' numbers: these depend on when a table grew, and with them would where the runs
// of equal rows are cut, and so the last bits of their sums.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// 1 where a sorted position begins a row.
struct IsBegin {
  const uint32_t* firsts;  // sorted
  uint32_t none;

  __device__ uint32_t operator()(uint32_t s) const {
    const uint32_t first = firsts[s];
    return first != none && (s == 0 || firsts[s - 1] != first) ? 1 : 0;
  }
};

auto Begins(const uint32_t* firsts, uint32_t none) {
  return thrust::make_transform_iterator(thrust::counting_iterator<uint32_t>(0),
                                         IsBegin{firsts, none});
}

// Positions beyond the last, which wrong offsets leave, are sorted to the end.
__global__ void FirstKernel(TrainStepView step) {
  const uint32_t v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= step.batch.key_count) return;
  uint32_t first = step.batch.key_count;
  if (v < step.starts[step.feature_count]) {
    const uint32_t row = step.found.rows[v];
    first = v;
    if (row != kNoDeviceRow) {
      const uint32_t f = FeatureAt(step, v);
      const TrainTableView& table = step.set.tables[step.features[f].table];
      RowRecord& record = step.set.groups[table.group].records[row];
      first = ~LowerHalf(record.order);
      if (first == v && step.new_rows != TrainStepView::NewRows::kNone)
        record.last_seen = step.tables[step.features[f].step_table].step;
    }
  }
  step.order.firsts[v] = first;
  step.order.positions[v] = v;
}

// What Reduce and Apply need to know of each row.
__global__ void PlaceKernel(TrainStepView step, IsBegin is_begin) {
  const uint32_t s = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t total = step.starts[step.feature_count];
  if (s >= total) return;
  if (s + 1 == total) step.places.begins[step.order.places[s]] = total;
  if (is_begin(s) == 0) return;
  const uint32_t place = step.order.places[s] - 1;
  const uint32_t v = step.order.sorted[s];
  const uint32_t f = FeatureAt(step, v);
  const FeatureView& feature = step.features[f];
  step.places.begins[place] = s;
  step.places.places[place] = {step.batch.keys[feature.key_begin + (v - step.starts[f])],
                               step.found.rows[v], feature.step_table};
}

__global__ void GroupKernel(TrainStepView step) {
  const auto places_before = [&step](uint32_t feature) {
    const uint32_t start = step.starts[feature];
    return start == 0 ? 0 : step.order.places[start - 1];
  };
  uint64_t sums = 0;
  for (uint32_t g = 0; g < step.group_count; ++g) {
    StepGroup& group = step.groups[g];
    group.place_begin = places_before(group.feature_begin);
    group.place_end = places_before(group.feature_end);
    group.sums_begin = sums;
    sums += uint64_t{group.place_end - group.place_begin} * group.dim;
  }
}

}  // namespace

cudaError_t OrderScratchBytes(uint32_t key_count, size_t* bytes) {
  size_t sort = 0;
  size_t scan = 0;
  const uint32_t* const from = nullptr;
  uint32_t* const to = nullptr;
  cudaError_t error = cub::DeviceRadixSort::SortPairs(nullptr, sort, from, to, from, to, key_count);
  if (error == cudaSuccess)
    error = cub::DeviceScan::InclusiveSum(nullptr, scan, Begins(from, 0), to, key_count);
  *bytes = std::max(sort, scan);
  return error;
}

cudaError_t FindFirsts(const TrainStepView& step, cudaStream_t stream) {
  return LaunchKernel<FirstKernel>(
      {.blocks = Blocks(step.batch.key_count, kThreads), .threads = kThreads, .stream = stream},
      step);
}

cudaError_t OrderPositions(const TrainStepView& step, cudaStream_t stream) {
  const SortedPositions& memory = step.order;
  const uint32_t count = step.batch.key_count;
  size_t bytes = memory.scratch_bytes;
  // Firsts are at most `count`.
  cudaError_t error = cub::DeviceRadixSort::SortPairs(
      memory.scratch, bytes, memory.firsts, memory.sorted_firsts, memory.positions, memory.sorted,
      count, 0, static_cast<int>(std::bit_width(count)), stream);
  if (error != cudaSuccess) return error;
  bytes = memory.scratch_bytes;
  error = cub::DeviceScan::InclusiveSum(memory.scratch, bytes, Begins(memory.sorted_firsts, count),
                                        memory.places, count, stream);
  if (error != cudaSuccess) return error;
  error = LaunchKernel<PlaceKernel>(
      {.blocks = Blocks(count, kThreads), .threads = kThreads, .stream = stream}, step,
      IsBegin{memory.sorted_firsts, count});
  if (error != cudaSuccess) return error;
  return LaunchKernel<GroupKernel>({.blocks = 1, .threads = 1, .stream = stream}, step);
}

}  // namespace hps
