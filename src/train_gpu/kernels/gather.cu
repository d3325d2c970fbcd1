// Gather: rows to outputs.
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/floats.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// Output rows of a feature.
struct OutputRows {
  FeatureRows to;
  uint32_t start;  // the feature's first position
  uint32_t count;
  uint32_t first;  // of those that a tile makes
};

// The positions of an output row.
struct Bag {
  uint32_t start;  // the feature's first
  uint32_t begin;
  uint32_t end;
};

__device__ Bag BagAt(const TrainStepView& step, const FeatureView& feature, uint32_t start,
                     uint32_t keys, uint32_t output) {
  const auto cut = [&](int64_t offset) {
    const int64_t local = offset - static_cast<int64_t>(feature.key_begin);
    return static_cast<uint32_t>(max(int64_t{0}, min(local, int64_t{keys})));
  };
  const uint32_t begin = cut(step.batch.offsets[feature.bag_begin + output]);
  const uint32_t end = cut(step.batch.offsets[feature.bag_begin + output + 1]);
  return {start, start + begin, start + max(begin, end)};
}

template <typename Vector>
__device__ Vector ValueAt(const TrainGroupView& group, uint32_t row, uint32_t column) {
  if (row == kNoDeviceRow) return Zero<Vector>();
  return *reinterpret_cast<const Vector*>(VectorOf(group, row) + column);
}

constexpr uint32_t kAtOnce = 4;  // rows under way in a tile

// Outputs of one row each: copies. `first`: the first of kAtOnce output rows.
template <typename Vector>
__device__ void CopyRows(const TrainStepView& step, const TrainGroupView& group,
                         const FeatureView& feature, const OutputRows& out, uint32_t column) {
  const float* const weights =
      feature.is_weighted != 0 ? step.batch.weights + feature.key_begin : nullptr;
  Vector values[kAtOnce];
#pragma unroll
  for (uint32_t i = 0; i < kAtOnce; ++i) {
    if (out.first + i >= out.count) break;
    values[i] = ValueAt<Vector>(group, step.found.rows[out.start + out.first + i], column);
    if (weights != nullptr) values[i] = Times(values[i], weights[out.first + i]);
  }
#pragma unroll
  for (uint32_t i = 0; i < kAtOnce; ++i) {
    if (out.first + i >= out.count) break;
    auto* const to = out.to.rows + uint64_t{out.first + i} * out.to.stride + column;
    *reinterpret_cast<Vector*>(to) = values[i];
  }
}

// The sum of a bag. The order of additions is that of the keys.
template <typename Vector>
__device__ Vector PoolRows(const TrainStepView& step, const TrainGroupView& group,
                           const FeatureView& feature, const Bag& bag, uint32_t column) {
  const float* const weights =
      feature.is_weighted != 0 ? step.batch.weights + feature.key_begin - bag.start : nullptr;
  Vector sum = Zero<Vector>();
  for (uint32_t first = bag.begin; first < bag.end; first += kAtOnce) {
    Vector values[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i >= bag.end) break;
      values[i] = ValueAt<Vector>(group, step.found.rows[first + i], column);
      if (weights != nullptr) values[i] = Times(values[i], weights[first + i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i >= bag.end) break;
      sum = first + i == bag.begin ? values[i] : Plus(sum, values[i]);
    }
  }
  if (feature.pooling == Pooling::kMean && bag.end - bag.begin > 1)
    sum = Over(sum, static_cast<float>(bag.end - bag.begin));
  return sum;
}

// A tile of kLanes lanes makes kAtOnce output rows.
template <typename Vector, uint32_t kLanes>
__global__ void GatherKernel(TrainStepView step) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t tiles = gridDim.x * (blockDim.x / kLanes);
  for (uint32_t f = blockIdx.y; f < step.feature_count; f += gridDim.y) {
    const FeatureView& feature = step.features[f];
    const TrainGroupView& group = step.set.groups[step.set.tables[feature.table].group];
    const bool is_bagged = step.batch.offsets != nullptr && feature.pooling != Pooling::kNone;
    const uint32_t keys = step.starts[f + 1] - step.starts[f];
    OutputRows out{step.outputs[f], step.starts[f], is_bagged ? feature.bag_count : keys, 0};
    if (out.to.rows == nullptr) continue;
    // The host does not know how many rows these make.
    if (!is_bagged && step.found.counts->has_bad_offsets != 0) continue;
    for (uint32_t tile = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
         tile * kAtOnce < out.count; tile += tiles) {
      out.first = tile * kAtOnce;
      for (uint32_t column = lane * kWidth; column < group.dim; column += kLanes * kWidth) {
        if (!is_bagged) {
          CopyRows<Vector>(step, group, feature, out, column);
          continue;
        }
        const uint32_t end = min(out.first + kAtOnce, out.count);
        for (uint32_t row = out.first; row < end; ++row) {
          const Vector sum = PoolRows<Vector>(step, group, feature,
                                              BagAt(step, feature, out.start, keys, row), column);
          *reinterpret_cast<Vector*>(out.to.rows + uint64_t{row} * out.to.stride + column) = sum;
        }
      }
    }
  }
}

}  // namespace

cudaError_t GatherRows(const TrainStepView& step, uint32_t rows_max, uint32_t dim_max,
                       bool is_aligned, cudaStream_t stream) {
  return WithTiles(dim_max, is_aligned, [&]<typename Vector, uint32_t kLanes>() {
    return LaunchKernel<GatherKernel<Vector, kLanes>>(
        {.blocks = Blocks(rows_max, kThreads / kLanes * kAtOnce),
         .threads = kThreads,
         .stream = stream,
         .rows = std::min(step.feature_count, kGridRowsMax)},
        step);
  });
}

}  // namespace hps
