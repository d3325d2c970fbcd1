// Reduce: the gradients of outputs to one sum for each row.
//
// A tile of lanes sums up a chunk of 32 sorted positions. The sum of a run within a chunk is final;
// of a longer one, a span, each chunk keeps its part, and a warp or a block adds the parts in
// a fixed order. Where a run is cut depends on the batch alone.
#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/elements.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// The gradient of a sorted position: a row, null for zeros, and its factor.
struct Source {
  const std::byte* row;
  float factor;
  uint32_t run;  // one more than the first position of its row
};

__device__ Source SourceAt(const TrainStepView& step, const ReduceView& reduce, uint32_t s) {
  const uint32_t v = step.order.sorted[s];
  const uint32_t f = FeatureAt(step, v);
  const FeatureView& feature = step.features[f];
  const FeatureRows gradients = reduce.gradients[f];
  const uint32_t local = v - step.starts[f];
  const bool is_bagged = step.batch.offsets != nullptr && feature.pooling != Pooling::kNone;
  const uint32_t output = is_bagged ? step.found.bags[v] : local;
  Source source{nullptr, 1.0f, step.order.sorted_firsts[s] + 1};
  if (gradients.rows == nullptr) return source;
  source.row = gradients.rows + output * gradients.stride;
  if (feature.is_weighted != 0) {
    source.factor = step.batch.weights[feature.key_begin + local];
  } else if (is_bagged && feature.pooling == Pooling::kMean) {
    const int64_t* const ends = step.batch.offsets + feature.bag_begin + output;
    source.factor = 1.0f / static_cast<float>(ends[1] - ends[0]);
  }
  return source;
}

// Where the sum of the run goes that begins with this sorted position.
__device__ float* SumAt(const ReduceView& reduce, const StepGroup& group, uint32_t s) {
  return reduce.sums + group.sums_begin + uint64_t{s - group.begin} * group.dim;
}

template <typename Vector>
__device__ void StoreSum(const TrainStepView& step, const ReduceView& reduce, float* to,
                         Vector sum) {
  *reinterpret_cast<Vector*>(to) = sum;
  if (!IsWithin(sum, reduce.limit)) step.found.counts->is_refused = 1;
}

constexpr uint32_t kShortParts = 16;

// Lists a run that goes on behind the chunk in which it begins: short ones from the first place of
// the list on, long ones from the last one down. All lanes of a tile call it.
template <uint32_t kLanes>
__device__ void ListSpan(const TrainStepView& step, const ReduceView& reduce,
                         const StepGroup& group, uint32_t begin) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t* const firsts = step.order.sorted_firsts;
  const uint32_t first = firsts[begin];
  const uint32_t next = begin / kChunk + 1;
  uint32_t parts = 1;  // and the chunks that begin with this run
  bool goes_on = true;
  for (uint32_t base = 0; goes_on && parts <= kShortParts; base += kLanes) {
    const uint32_t at = (next + base + lane) * kChunk;
    const bool has_run = at < group.end && firsts[at] == first;
    const uint32_t have = __ballot_sync(TileMask<kLanes>(), has_run) & TileMask<kLanes>();
    const auto count = static_cast<uint32_t>(__popc(have));
    parts += count;
    goes_on = count == kLanes;
  }
  if (lane != 0) return;
  StepCounts& counts = *step.found.counts;
  const uint32_t place = parts <= kShortParts
                             ? atomicAdd(&counts.short_spans, 1u)
                             : reduce.chunks - 1 - atomicAdd(&counts.long_spans, 1u);
  reduce.spans[place] = {begin, parts};
}

// The gradients of one chunk in some columns.
template <typename Vector>
struct ChunkSums {
  const TrainStepView& step;
  const ReduceView& reduce;
  const StepGroup& group;
  uint32_t chunk;
  uint32_t column;
  // Of the run that is summed up.
  uint32_t run = 0;        // as in Source; 0: there is none
  uint32_t begin = 0;      // sorted position
  bool is_before = false;  // it began in an earlier chunk
  Vector sum = Zero<Vector>();

  __device__ void Store(bool is_after) const {
    if (column >= group.dim) return;
    const uint64_t at = uint64_t{chunk} * reduce.dim_max + column;
    if (is_before)
      *reinterpret_cast<Vector*>(reduce.heads + at) = sum;
    else if (is_after)
      *reinterpret_cast<Vector*>(reduce.tails + at) = sum;
    else
      StoreSum(step, reduce, SumAt(reduce, group, begin) + column, sum);
  }
};

template <typename Vector, uint32_t kLanes>
__global__ void __launch_bounds__(kThreads, kBlocksOnSm)
    ChunkKernel(TrainStepView step, ReduceView reduce, uint32_t g) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  constexpr uint32_t kAtOnce = 4;  // gradients under way
  if (step.found.counts->has_bad_offsets != 0) return;
  const StepGroup group = step.groups[g];  // a copy is not read again behind each store
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t mask = TileMask<kLanes>();
  const uint32_t chunk = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
  const uint32_t begin = max(chunk * kChunk, group.begin);
  const uint32_t end = min(chunk * kChunk + kChunk, group.end);
  if (begin >= end) return;
  const uint32_t* const firsts = step.order.sorted_firsts;
  const uint32_t run_before = begin > group.begin ? firsts[begin - 1] + 1 : 0;
  const uint32_t run_after = end < group.end ? firsts[end] + 1 : 0;
  for (uint32_t base_column = 0; base_column < group.dim; base_column += kLanes * kWidth) {
    ChunkSums<Vector> sums{step, reduce, group, chunk, base_column + lane * kWidth};
    const bool has_column = sums.column < group.dim;
    for (uint32_t base = begin; base < end; base += kLanes) {
      Source own{nullptr, 0.0f, 0};
      if (base + lane < end) own = SourceAt(step, reduce, base + lane);
      const auto address = reinterpret_cast<unsigned long long>(own.row);
      const uint32_t count = min(kLanes, end - base);
      for (uint32_t first = 0; first < count; first += kAtOnce) {
        RawElements<Vector> raw[kAtOnce];
        float factors[kAtOnce];
        uint32_t runs[kAtOnce];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          const int from = static_cast<int>(first + i);
          const auto* row =
              reinterpret_cast<const std::byte*>(__shfl_sync(mask, address, from, kLanes));
          factors[i] = __shfl_sync(mask, own.factor, from, kLanes);
          runs[i] = __shfl_sync(mask, own.run, from, kLanes);
          if (!has_column || first + i >= count) row = nullptr;
          raw[i] = LoadRaw<Vector>(row, sums.column, reduce.dtype);
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (first + i >= count) break;
          const Vector value = Times(Converted(raw[i], reduce.dtype), factors[i]);
          if (runs[i] == sums.run) {
            sums.sum = Plus(sums.sum, value);
            continue;
          }
          if (sums.run != 0) sums.Store(/*is_after=*/false);
          sums.is_before = sums.run == 0 && runs[i] == run_before;
          sums.run = runs[i];
          sums.begin = base + first + i;
          sums.sum = value;
        }
      }
    }
    const bool is_after = sums.run == run_after;
    sums.Store(is_after);
    if (is_after && !sums.is_before && base_column == 0)
      ListSpan<kLanes>(step, reduce, group, sums.begin);
  }
}

// The group of a span.
__device__ const StepGroup& GroupOf(const TrainStepView& step, const Span& span) {
  const uint32_t f = FeatureAt(step, step.order.sorted[span.begin]);
  return step.groups[step.features[f].step_group];
}

// Adds parts of a span in order: the tail of its first chunk, and the heads of the others.
template <typename Vector>
__device__ Vector SumParts(const ReduceView& reduce, const Span& span, uint32_t begin, uint32_t end,
                           uint32_t column) {
  const uint64_t chunk = span.begin / kChunk;
  const auto part = [&](uint32_t p) {
    const float* const from = p == 0 ? reduce.tails : reduce.heads;
    return *reinterpret_cast<const Vector*>(from + (chunk + p) * reduce.dim_max + column);
  };
  Vector sum = part(begin);
#pragma unroll 8
  for (uint32_t p = begin + 1; p < end; ++p) sum = Plus(sum, part(p));
  return sum;
}

constexpr uint32_t kSpanThreads = 512;
constexpr uint32_t kSlices = kSpanThreads / kWarpLanes;

// How many chunks have some of a long run. All threads of a block look for its end at once.
__device__ uint32_t PartsOf(const TrainStepView& step, const StepGroup& group, uint32_t begin) {
  const uint32_t* const firsts = step.order.sorted_firsts;
  const uint32_t first = firsts[begin];
  uint32_t last = begin;  // a position of the run
  uint32_t end = group.end;
  while (end - last > 1) {
    const uint32_t reach = (end - last + kSpanThreads - 1) / kSpanThreads;
    const uint32_t at = last + reach * (threadIdx.x + 1);
    const bool has_run = at < end && firsts[at] == first;
    const auto count = static_cast<uint32_t>(__syncthreads_count(has_run ? 1 : 0));
    last += reach * count;
    end = min(end, last + reach);
  }
  return last / kChunk - begin / kChunk + 1;
}

// A block adds the parts of a long span: each warp those of a slice, then one warp the slices.
template <typename Vector>
__device__ void SumLongSpan(const TrainStepView& step, const ReduceView& reduce, const Span& span,
                            const StepGroup& group) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  __shared__ Vector slices[kSlices][kWarpLanes];
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t slice = threadIdx.x / kWarpLanes;
  const uint32_t per_slice = (span.parts + kSlices - 1) / kSlices;
  const uint32_t used = (span.parts + per_slice - 1) / per_slice;
  const uint32_t begin = slice * per_slice;
  for (uint32_t base = 0; base < group.dim; base += kWarpLanes * kWidth) {
    const uint32_t column = base + lane * kWidth;
    if (slice < used && column < group.dim) {
      slices[slice][lane] =
          SumParts<Vector>(reduce, span, begin, min(begin + per_slice, span.parts), column);
    }
    __syncthreads();
    if (slice == 0 && column < group.dim) {
      Vector sum = slices[0][lane];
      for (uint32_t other = 1; other < used; ++other) sum = Plus(sum, slices[other][lane]);
      StoreSum(step, reduce, SumAt(reduce, group, span.begin) + column, sum);
    }
    __syncthreads();
  }
}

// Long spans are a block's, short ones a warp's.
template <typename Vector>
__global__ void __launch_bounds__(kSpanThreads) SpanKernel(TrainStepView step, ReduceView reduce) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  const StepCounts& counts = *step.found.counts;
  for (uint32_t i = blockIdx.x; i < counts.long_spans; i += gridDim.x) {
    Span span = reduce.spans[reduce.chunks - 1 - i];
    const StepGroup& group = GroupOf(step, span);
    span.parts = PartsOf(step, group, span.begin);
    SumLongSpan<Vector>(step, reduce, span, group);
  }
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warps = gridDim.x * (blockDim.x / kWarpLanes);
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpLanes; i < counts.short_spans;
       i += warps) {
    const Span span = reduce.spans[i];
    const StepGroup& group = GroupOf(step, span);
    for (uint32_t column = lane * kWidth; column < group.dim; column += kWarpLanes * kWidth) {
      const Vector sum = SumParts<Vector>(reduce, span, 0, span.parts, column);
      StoreSum(step, reduce, SumAt(reduce, group, span.begin) + column, sum);
    }
  }
}

template <typename Vector>
cudaError_t SumSpans(const TrainStepView& step, const ReduceView& reduce, cudaStream_t stream) {
  return LaunchKernel<SpanKernel<Vector>>(
      {.blocks = std::min(Blocks(reduce.chunks, kSpanThreads / kWarpLanes), kFewBlocks),
       .threads = kSpanThreads,
       .stream = stream},
      step, reduce);
}

}  // namespace

cudaError_t SumGradients(const TrainStepView& step, const ReduceView& reduce,
                         std::span<const StepGroup> groups, cudaStream_t stream) {
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const cudaError_t error =
        WithTiles(groups[g].dim, reduce.is_aligned, [&]<typename Vector, uint32_t kLanes>() {
          return LaunchKernel<ChunkKernel<Vector, kLanes>>(
              {.blocks = Blocks(reduce.chunks, kThreads / kLanes),
               .threads = kThreads,
               .stream = stream},
              step, reduce, g);
        });
    if (error != cudaSuccess) return error;
  }
  return reduce.is_aligned ? SumSpans<float4>(step, reduce, stream)
                           : SumSpans<float>(step, reduce, stream);
}

}  // namespace hps
