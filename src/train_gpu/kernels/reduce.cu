// Reduce: the gradients of outputs to one sum for each row.
//
// A tile of lanes sums up a chunk of 32 sorted positions. A run of equal rows within a chunk is
// final; of a longer one, each chunk keeps its part, and a block adds the parts in order. Where a
// run is cut depends on the batch alone.
#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/floats.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// The gradient of a sorted position: a row, null for zeros, and its factor.
struct Source {
  const float* row;
  float factor;
  uint32_t place;  // one more than it
};

__device__ Source SourceAt(const TrainStepView& step, const ReduceView& reduce, uint32_t s) {
  const uint32_t v = step.order.sorted[s];
  const uint32_t f = FeatureAt(step, v);
  const FeatureView& feature = step.features[f];
  const FeatureRows gradients = reduce.gradients[f];
  const uint32_t local = v - step.starts[f];
  const bool is_bagged = step.batch.offsets != nullptr && feature.pooling != Pooling::kNone;
  const uint32_t output = is_bagged ? step.found.bags[v] : local;
  Source source{nullptr, 1.0f, step.order.places[s]};
  if (gradients.rows != nullptr) source.row = gradients.rows + output * gradients.stride;
  if (feature.is_weighted != 0) {
    source.factor = step.batch.weights[feature.key_begin + local];
  } else if (is_bagged && feature.pooling == Pooling::kMean) {
    const int64_t* const ends = step.batch.offsets + feature.bag_begin + output;
    source.factor = 1.0f / static_cast<float>(ends[1] - ends[0]);
  }
  return source;
}

// Where the sum of a place goes.
__device__ float* SumOf(const ReduceView& reduce, const StepGroup& group, uint32_t place) {
  return reduce.sums + group.sums_begin + uint64_t{place - group.place_begin} * group.dim;
}

template <typename Vector>
__device__ void StoreSum(const TrainStepView& step, const ReduceView& reduce, float* to,
                         Vector sum) {
  *reinterpret_cast<Vector*>(to) = sum;
  if (!IsWithin(sum, reduce.limit)) step.found.counts->is_refused = 1;
}

// The gradients of one chunk in some columns.
template <typename Vector>
struct ChunkSums {
  const TrainStepView& step;
  const ReduceView& reduce;
  const StepGroup& group;
  uint32_t chunk;
  uint32_t column;
  bool is_before;  // the run that is summed up began in an earlier chunk
  uint32_t place = 0;
  Vector sum = Zero<Vector>();

  __device__ void Store(bool is_after) {
    if (column >= group.dim) return;
    const uint64_t at = uint64_t{chunk} * reduce.dim_max + column;
    if (is_before) {
      *reinterpret_cast<Vector*>(reduce.heads + at) = sum;
    } else if (is_after) {
      *reinterpret_cast<Vector*>(reduce.tails + at) = sum;
      if (column == 0) reduce.spans[atomicAdd(&step.found.counts->spans, 1u)] = chunk;
    } else {
      StoreSum(step, reduce, SumOf(reduce, group, place - 1) + column, sum);
    }
  }
};

template <typename Vector, uint32_t kLanes>
__global__ void ChunkKernel(TrainStepView step, ReduceView reduce, uint32_t g) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  constexpr uint32_t kAtOnce = 4;  // gradients under way
  if (step.found.counts->has_bad_offsets != 0) return;
  const StepGroup& group = step.groups[g];
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t mask = TileMask<kLanes>();
  const uint32_t chunk = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
  const uint32_t group_begin = step.starts[group.feature_begin];
  const uint32_t group_end = step.starts[group.feature_end];
  const uint32_t begin = max(chunk * kChunk, group_begin);
  const uint32_t end = min(chunk * kChunk + kChunk, group_end);
  if (begin >= end) return;
  const uint32_t place_before = begin > group_begin ? step.order.places[begin - 1] : 0;
  const uint32_t place_after = end < group_end ? step.order.places[end] : 0;
  for (uint32_t base_column = 0; base_column < group.dim; base_column += kLanes * kWidth) {
    ChunkSums<Vector> sums{step, reduce, group, chunk, base_column + lane * kWidth, false};
    const bool has_column = sums.column < group.dim;
    for (uint32_t base = begin; base < end; base += kLanes) {
      Source own{nullptr, 0.0f, 0};
      if (base + lane < end) own = SourceAt(step, reduce, base + lane);
      const auto address = reinterpret_cast<unsigned long long>(own.row);
      const uint32_t count = min(kLanes, end - base);
      for (uint32_t first = 0; first < count; first += kAtOnce) {
        Vector values[kAtOnce];
        uint32_t places[kAtOnce];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          const int from = static_cast<int>(first + i);
          const auto* const row =
              reinterpret_cast<const float*>(__shfl_sync(mask, address, from, kLanes));
          const float factor = __shfl_sync(mask, own.factor, from, kLanes);
          places[i] = __shfl_sync(mask, own.place, from, kLanes);
          values[i] = Zero<Vector>();
          if (row != nullptr && has_column && first + i < count) {
            values[i] = Times(*reinterpret_cast<const Vector*>(row + sums.column), factor);
          }
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (first + i >= count) break;
          if (places[i] == sums.place) {
            sums.sum = Plus(sums.sum, values[i]);
            continue;
          }
          if (sums.place != 0) sums.Store(/*is_after=*/false);
          sums.is_before = sums.place == 0 && places[i] == place_before;
          sums.place = places[i];
          sums.sum = values[i];
        }
      }
    }
    sums.Store(/*is_after=*/sums.place == place_after);
  }
}

// A run over several chunks: its parts are the tail of the first and the heads of the others.
struct Span {
  uint32_t chunk;  // the first
  uint32_t parts;
  uint32_t place;
  const StepGroup* group;
};

__device__ Span SpanAt(const TrainStepView& step, const ReduceView& reduce, uint32_t i) {
  const uint32_t chunk = reduce.spans[i];
  const uint32_t last = chunk * kChunk + kChunk - 1;  // of the chunk; the run goes on behind it
  const uint32_t place = step.order.places[last] - 1;
  const uint32_t f = FeatureAt(step, step.order.sorted[last]);
  return {chunk, (step.places.begins[place + 1] - 1) / kChunk - chunk + 1, place,
          &step.groups[step.features[f].step_group]};
}

// Adds parts in order.
template <typename Vector>
__device__ Vector SumParts(const ReduceView& reduce, const Span& span, uint32_t begin, uint32_t end,
                           uint32_t column) {
  const auto part = [&](uint32_t p) {
    const float* const from = p == 0 ? reduce.tails : reduce.heads;
    return *reinterpret_cast<const Vector*>(from + uint64_t{span.chunk + p} * reduce.dim_max +
                                            column);
  };
  Vector sum = part(begin);
#pragma unroll 8
  for (uint32_t p = begin + 1; p < end; ++p) sum = Plus(sum, part(p));
  return sum;
}

// Runs of a few parts are a warp's, longer ones a block's.
constexpr uint32_t kShortParts = 16;

template <typename Vector>
__global__ void ShortSpanKernel(TrainStepView step, ReduceView reduce) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warps = gridDim.x * (blockDim.x / kWarpLanes);
  const uint32_t span_count = step.found.counts->spans;
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpLanes; i < span_count;
       i += warps) {
    const Span span = SpanAt(step, reduce, i);
    if (span.parts > kShortParts) continue;
    for (uint32_t column = lane * kWidth; column < span.group->dim; column += kWarpLanes * kWidth) {
      const Vector sum = SumParts<Vector>(reduce, span, 0, span.parts, column);
      StoreSum(step, reduce, SumOf(reduce, *span.group, span.place) + column, sum);
    }
  }
}

constexpr uint32_t kSpanThreads = 512;
constexpr uint32_t kSlices = kSpanThreads / kWarpLanes;

// Each warp adds the parts of a slice, then one warp the slices.
template <typename Vector>
__global__ void __launch_bounds__(kSpanThreads)
    LongSpanKernel(TrainStepView step, ReduceView reduce) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  __shared__ Vector slices[kSlices][kWarpLanes];
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t slice = threadIdx.x / kWarpLanes;
  const uint32_t span_count = step.found.counts->spans;
  for (uint32_t i = blockIdx.x; i < span_count; i += gridDim.x) {
    const Span span = SpanAt(step, reduce, i);
    if (span.parts <= kShortParts) continue;
    const uint32_t per_slice = (span.parts + kSlices - 1) / kSlices;
    const uint32_t used = (span.parts + per_slice - 1) / per_slice;
    const uint32_t begin = slice * per_slice;
    for (uint32_t base = 0; base < span.group->dim; base += kWarpLanes * kWidth) {
      const uint32_t column = base + lane * kWidth;
      if (slice < used && column < span.group->dim) {
        slices[slice][lane] =
            SumParts<Vector>(reduce, span, begin, min(begin + per_slice, span.parts), column);
      }
      __syncthreads();
      if (slice == 0 && column < span.group->dim) {
        Vector sum = slices[0][lane];
        for (uint32_t other = 1; other < used; ++other) sum = Plus(sum, slices[other][lane]);
        StoreSum(step, reduce, SumOf(reduce, *span.group, span.place) + column, sum);
      }
      __syncthreads();
    }
  }
}

template <typename Vector>
cudaError_t SumSpans(const TrainStepView& step, const ReduceView& reduce, uint64_t chunks,
                     cudaStream_t stream) {
  const cudaError_t error = LaunchKernel<ShortSpanKernel<Vector>>(
      {.blocks = std::min(Blocks(chunks, kThreads / kWarpLanes), kManyBlocks),
       .threads = kThreads,
       .stream = stream},
      step, reduce);
  if (error != cudaSuccess) return error;
  return LaunchKernel<LongSpanKernel<Vector>>({.blocks = std::min(Blocks(chunks, 1), kFewBlocks),
                                               .threads = kSpanThreads,
                                               .stream = stream},
                                              step, reduce);
}

}  // namespace

cudaError_t SumGradients(const TrainStepView& step, const ReduceView& reduce,
                         std::span<const StepGroup> groups, cudaStream_t stream) {
  const uint64_t chunks = (uint64_t{step.batch.key_count} + kChunk - 1) / kChunk;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const cudaError_t error =
        WithTiles(groups[g].dim, reduce.is_aligned, [&]<typename Vector, uint32_t kLanes>() {
          return LaunchKernel<ChunkKernel<Vector, kLanes>>(
              {.blocks = Blocks(chunks, kThreads / kLanes), .threads = kThreads, .stream = stream},
              step, reduce, g);
        });
    if (error != cudaSuccess) return error;
  }
  return reduce.is_aligned ? SumSpans<float4>(step, reduce, chunks, stream)
                           : SumSpans<float>(step, reduce, chunks, stream);
}

}  // namespace hps
