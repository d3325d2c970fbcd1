// Gather: rows to outputs.
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/elements.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

constexpr uint32_t kAtOnce = 4;  // rows under way in a tile
constexpr uint64_t kTilesWanted = 8192;

// The rows of a group.
struct GroupRows {
  const std::byte* rows;
  uint64_t stride;
  Dtype dtype;
};

// Outputs of a feature that a tile of kLanes lanes makes, at most kLanes. Copies of what they need:
// the compiler would read memory again behind each output that is written.
struct TileOutputs {
  const uint32_t* found_rows;  // [keys]
  GroupRows from;
  uint32_t dim;
  const float* weights;    // of the feature's keys; null: 1
  const int64_t* offsets;  // of the feature's bags
  int64_t key_begin;
  bool is_mean;
  bool has_keys;
  FeatureRows to;
  Dtype output_dtype;
  uint32_t start;  // the feature's first position
  uint32_t first;  // output
  uint32_t count;
  uint32_t column;  // of the calling lane

  __device__ TileOutputs(const TrainStepView& step, uint32_t f, const TrainGroupView& group)
      : found_rows(step.found.rows),
        from{group.rows, group.stride_bytes, group.dtype},
        dim(group.dim),
        weights(nullptr),
        offsets(step.batch.offsets + step.features[f].bag_begin),
        key_begin(static_cast<int64_t>(step.features[f].key_begin)),
        is_mean(step.features[f].pooling == Pooling::kMean),
        has_keys(step.found.counts->has_bad_offsets == 0),
        to(step.outputs.rows[f]),
        output_dtype(step.outputs.dtype),
        start(step.starts[f]) {
    if (step.features[f].is_weighted != 0) weights = step.batch.weights + key_begin;
  }

  // A position, as one lane knows it: the row, null for zeros, and its factor.
  struct Source {
    unsigned long long row;
    float weight;
  };
  __device__ Source SourceAt(uint32_t v) const {
    const uint32_t row = found_rows[v];
    const std::byte* const at = row == kNoDeviceRow ? nullptr : from.rows + row * from.stride;
    return {reinterpret_cast<unsigned long long>(at),
            weights == nullptr ? 1.0f : weights[v - start]};
  }

  template <typename Vector>
  __device__ void StoreOutput(uint32_t output, Vector value) const {
    if (column < dim) Store(to.rows + (first + output) * to.stride, column, value, output_dtype);
  }

  // Calls take(position, row) for the positions from `begin` to `end`, in their order, with some
  // rows under way. All lanes of the tile call it.
  template <typename Vector, uint32_t kLanes, typename Take>
  __device__ void ForRows(uint32_t begin, uint32_t end, const Take& take) const {
    const uint32_t lane = threadIdx.x % kLanes;
    const uint32_t mask = TileMask<kLanes>();
    for (uint32_t base = begin; base < end; base += kLanes) {
      Source own{0, 1.0f};
      if (base + lane < end) own = SourceAt(base + lane);
      const uint32_t here = min(kLanes, end - base);
      for (uint32_t at = 0; at < here; at += kAtOnce) {
        RawElements<Vector> raw[kAtOnce];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          const auto* row = reinterpret_cast<const std::byte*>(
              __shfl_sync(mask, own.row, static_cast<int>(at + i), kLanes));
          if (column >= dim) row = nullptr;
          raw[i] = LoadRaw<Vector>(row, column, from.dtype);
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (at + i >= here) break;
          Vector value = Converted(raw[i], from.dtype);
          if (weights != nullptr) {
            const float weight = __shfl_sync(mask, own.weight, static_cast<int>(at + i), kLanes);
            value = Times(value, weight);
          }
          take(base + at + i, value);
        }
      }
    }
  }

  // One row each.
  template <typename Vector, uint32_t kLanes>
  __device__ void Copy() const {
    const uint32_t begin = start + first;
    ForRows<Vector, kLanes>(begin, begin + count,
                            [&](uint32_t v, Vector value) { StoreOutput(v - begin, value); });
  }

  // Sums of bags, whose keys follow each other. The order of additions is that of the keys.
  template <typename Vector, uint32_t kLanes>
  __device__ void Pool() const {
    const uint32_t lane = threadIdx.x % kLanes;
    const uint32_t mask = TileMask<kLanes>();
    // Of wrong offsets all bags are empty.
    const auto position = [&](int64_t offset) {
      return has_keys ? start + static_cast<uint32_t>(offset - key_begin) : start;
    };
    uint32_t bag = 0;
    uint32_t begin = position(offsets[first]);  // of the bag
    const uint32_t own_end = position(offsets[first + min(lane + 1, count)]);
    const uint32_t all_end = __shfl_sync(mask, own_end, static_cast<int>(count - 1), kLanes);
    uint32_t end = __shfl_sync(mask, own_end, 0, kLanes);
    Vector sum = Zero<Vector>();
    const auto finish = [&] {
      if (is_mean && end - begin > 1) sum = Over(sum, static_cast<float>(end - begin));
      StoreOutput(bag++, sum);
      sum = Zero<Vector>();
      begin = end;
      end = __shfl_sync(mask, own_end, static_cast<int>(min(bag, count - 1)), kLanes);
    };
    ForRows<Vector, kLanes>(begin, all_end, [&](uint32_t v, Vector value) {
      while (v >= end) finish();
      sum = v == begin ? value : Plus(sum, value);
    });
    while (bag < count) finish();
  }
};

template <typename Vector, uint32_t kLanes>
__global__ void __launch_bounds__(kThreads, kBlocksOnSm)
    GatherKernel(TrainStepView step, uint32_t per_tile) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t tiles = gridDim.x * (blockDim.x / kLanes);
  for (uint32_t f = blockIdx.y; f < step.feature_count; f += gridDim.y) {
    const FeatureView& feature = step.features[f];
    const TrainGroupView& group = step.set.groups[step.set.tables[feature.table].group];
    const bool is_bagged = step.batch.offsets != nullptr && feature.pooling != Pooling::kNone;
    TileOutputs out(step, f, group);
    const uint32_t count = is_bagged ? feature.bag_count : step.starts[f + 1] - out.start;
    if (out.to.rows == nullptr) continue;
    // The host does not know how many rows these make.
    if (!is_bagged && !out.has_keys) continue;
    for (uint32_t tile = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes; tile * per_tile < count;
         tile += tiles) {
      out.first = tile * per_tile;
      out.count = min(per_tile, count - out.first);
      for (uint32_t base = 0; base < out.dim; base += kLanes * kWidth) {
        out.column = base + lane * kWidth;
        if (is_bagged)
          out.template Pool<Vector, kLanes>();
        else
          out.template Copy<Vector, kLanes>();
      }
    }
  }
}

}  // namespace

cudaError_t GatherRows(const TrainStepView& step, uint32_t rows_max, uint32_t dim_max,
                       bool is_aligned, cudaStream_t stream) {
  return WithTiles(dim_max, is_aligned, [&]<typename Vector, uint32_t kLanes>() {
    // Few outputs go to many tiles, because each may have many keys.
    const uint64_t outputs = uint64_t{rows_max} * step.feature_count;
    const auto per_tile =
        static_cast<uint32_t>(std::clamp<uint64_t>(outputs / kTilesWanted, 1, kLanes));
    return LaunchKernel<GatherKernel<Vector, kLanes>>(
        {.blocks = Blocks(rows_max, kThreads / kLanes * per_tile),
         .threads = kThreads,
         .stream = stream,
         .rows = std::min(step.feature_count, kGridRowsMax)},
        step, per_tile);
  });
}

}  // namespace hps
