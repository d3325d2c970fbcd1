// The order of a step's positions: by the first position of their rows, stable.
//
// Not by the rows' numbers: these depend on when a table grew, and with them would where the runs
// of equal rows are cut, and so the last bits of their sums.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

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

}  // namespace

cudaError_t OrderScratchBytes(uint32_t key_count, size_t* bytes) {
  *bytes = 0;
  const uint32_t* const from = nullptr;
  uint32_t* const to = nullptr;
  return cub::DeviceRadixSort::SortPairs(nullptr, *bytes, from, to, from, to, key_count);
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
  return cub::DeviceRadixSort::SortPairs(memory.scratch, bytes, memory.firsts, memory.sorted_firsts,
                                         memory.positions, memory.sorted, count, 0,
                                         static_cast<int>(std::bit_width(count)), stream);
}

}  // namespace hps
