// Apply: sums of gradients to rows and states, by the formulas of train/sparse_optimizer.h and in
// the order of operations of the host's kernels (train_cpu/row_kernel_steps.h).
#include <limits>

#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/floats.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// What the elements of a row have in common.
struct RowFactors {
  float scale;
  float rate;         // of row-wise AdaGrad and of Adam: with the row's factor
  float decay;        // the learning rate times the weight decay
  float inverse;      // 1 / the learning rate, of FTRL
  float second;       // Adam's second correction
  float accumulator;  // of row-wise AdaGrad, with this update
};

// An element of the vector, or four of them, with their one or two values of state.
template <typename Vector>
struct Element {
  Vector w, a, b;
};

__device__ inline void UpdateElement(const SparseOptimizer& o, const RowFactors& r, float sum,
                                     Element<float>& element) {
  auto& [w, a, b] = element;
  const float g = sum * r.scale;
  if (r.decay != 0) w = w - r.decay * w;
  switch (o.kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kRowwiseAdagrad:
      w = w - r.rate * g;
      return;
    case OptimizerKind::kMomentum:
      a = o.momentum * a + g;
      w = w - r.rate * a;
      return;
    case OptimizerKind::kNesterov:
      a = o.momentum * a + g;
      w = w - r.rate * (g + o.momentum * a);
      return;
    case OptimizerKind::kAdagrad:
      a = a + g * g;
      w = w - r.rate * g / (sqrtf(a) + o.epsilon);
      return;
    case OptimizerKind::kAdam:
    case OptimizerKind::kSparseAdam:
      a = o.beta1 * a + (1 - o.beta1) * g;
      b = o.beta2 * b + (1 - o.beta2) * (g * g);
      w = w - r.rate * a / (sqrtf(b * r.second) + o.epsilon);
      return;
    case OptimizerKind::kFtrl: {
      const float before = a;
      a = a + g * g;
      const float root = sqrtf(a);
      b = b + (g - (root - sqrtf(before)) * r.inverse * w);
      const float within = fminf(fmaxf(b, -o.l1), o.l1);
      w = (within - b) / ((o.beta + root) * r.inverse + o.l2);
      return;
    }
  }
}
__device__ inline void UpdateElement(const SparseOptimizer& o, const RowFactors& r, float4 sum,
                                     Element<float4>& element) {
  auto& [w, a, b] = element;
  const auto update = [&](float gradient, float& each_w, float& each_a, float& each_b) {
    Element<float> each{each_w, each_a, each_b};
    UpdateElement(o, r, gradient, each);
    each_w = each.w;
    each_a = each.a;
    each_b = each.b;
  };
  update(sum.x, w.x, a.x, b.x);
  update(sum.y, w.y, a.y, b.y);
  update(sum.z, w.z, a.z, b.z);
  update(sum.w, w.w, a.w, b.w);
}

__device__ inline float SumOfSquares(float value) { return value * value; }
__device__ inline float SumOfSquares(float4 value) {
  return value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w;
}

// As BiasCorrections of the host.
__device__ float2 CorrectionAt(const TrainGroupView& group, uint32_t t) {
  if (group.corrections != nullptr && t < kKnownCorrections) return group.corrections[t];
  const double first = 1 - pow(static_cast<double>(group.optimizer.beta1), static_cast<double>(t));
  const double second = 1 - pow(static_cast<double>(group.optimizer.beta2), static_cast<double>(t));
  if (group.optimizer.kind == OptimizerKind::kSparseAdam)
    return make_float2(static_cast<float>(sqrt(second) / first), 1.0f);
  return make_float2(static_cast<float>(1 / first), static_cast<float>(1 / second));
}

// Sparse Adam has one correction for all rows of a table.
__global__ void CorrectionKernel(TrainStepView step, ReduceView reduce) {
  for (uint32_t t = threadIdx.x; t < step.table_count; t += blockDim.x) {
    const uint32_t table = step.tables[t].table;
    const TrainGroupView& group = step.set.groups[step.set.tables[table].group];
    if (group.optimizer.kind != OptimizerKind::kSparseAdam) continue;
    reduce.updates[t].correction =
        CorrectionAt(group, step.set.table_counters[table].updates + 1).x;
  }
}

// What the update of a row needs besides its elements. All lanes of a tile call it; `squares`: the
// lane's part of the sum of the scaled gradient's squares, for row-wise AdaGrad.
template <uint32_t kLanes>
__device__ RowFactors FactorsOf(const TrainGroupView& group, const StepUpdate& update,
                                const RowRecord& record, float squares) {
  const SparseOptimizer& optimizer = group.optimizer;
  RowFactors factors{.scale = update.scale,
                     .rate = update.rate,
                     .decay = update.rate * optimizer.weight_decay,
                     .inverse = 1 / update.rate,
                     .second = 1,
                     .accumulator = 0};
  if (optimizer.kind == OptimizerKind::kAdam) {
    const float2 correction = CorrectionAt(group, record.updates & kUpdatesMax);
    factors.rate = update.rate * correction.x;
    factors.second = correction.y;
  } else if (optimizer.kind == OptimizerKind::kSparseAdam) {
    factors.rate = update.rate * update.correction;
  } else if (optimizer.kind == OptimizerKind::kRowwiseAdagrad) {
    for (uint32_t reach = kLanes / 2; reach > 0; reach /= 2)
      squares += __shfl_xor_sync(TileMask<kLanes>(), squares, static_cast<int>(reach), kLanes);
    factors.accumulator = record.accumulator + squares / static_cast<float>(group.dim);
    factors.rate = update.rate / (sqrtf(factors.accumulator) + optimizer.epsilon);
  }
  return factors;
}

// Some columns of a row with their states and gradients. `kStates`: values of state behind each of
// the vector.
template <typename Vector, int kStates>
struct Columns {
  Vector* at;       // in the row
  uint32_t state;   // vectors from there to the first state
  Vector gradient;  // the sum
  Element<Vector> element;

  __device__ Columns(float* row, const float* sum, uint32_t dim, uint32_t column)
      : at(reinterpret_cast<Vector*>(row + column)),
        state(dim / (sizeof(Vector) / sizeof(float))),
        gradient(*reinterpret_cast<const Vector*>(sum + column)),
        element{*at, kStates > 0 ? at[state] : Zero<Vector>(),
                kStates > 1 ? at[2 * state] : Zero<Vector>()} {}

  __device__ void Update(const SparseOptimizer& optimizer, const RowFactors& factors) {
    UpdateElement(optimizer, factors, gradient, element);
    *at = element.w;
    if (kStates > 0) at[state] = element.a;
    if (kStates > 1) at[2 * state] = element.b;
  }
};

// A tile updates a row. Everything that it reads is under way before the first use. `record` has
// this update counted.
template <typename Vector, uint32_t kLanes, int kStates>
__device__ float UpdateRow(const TrainGroupView& group, const StepUpdate& update, const float* sum,
                           float* row, const RowRecord& record) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  const uint32_t first = threadIdx.x % kLanes * kWidth;
  if (group.dim <= kLanes * kWidth) {
    const bool has_column = first < group.dim;
    Columns<Vector, kStates> columns(row, sum, group.dim, has_column ? first : 0);
    const float squares = has_column ? SumOfSquares(Times(columns.gradient, update.scale)) : 0.0f;
    const RowFactors factors = FactorsOf<kLanes>(group, update, record, squares);
    if (has_column) columns.Update(group.optimizer, factors);
    return factors.accumulator;
  }
  float squares = 0;
  if (group.optimizer.kind == OptimizerKind::kRowwiseAdagrad) {
    for (uint32_t column = first; column < group.dim; column += kLanes * kWidth)
      squares += SumOfSquares(Times(*reinterpret_cast<const Vector*>(sum + column), update.scale));
  }
  const RowFactors factors = FactorsOf<kLanes>(group, update, record, squares);
  for (uint32_t column = first; column < group.dim; column += kLanes * kWidth) {
    Columns<Vector, kStates> columns(row, sum, group.dim, column);
    columns.Update(group.optimizer, factors);
  }
  return factors.accumulator;
}

// A row that was erased since the step took it is left alone, and so is the one in its place.
template <typename Vector, uint32_t kLanes, int kStates>
__global__ void UpdateKernel(TrainStepView step, ReduceView reduce, uint32_t g) {
  if (step.found.counts->is_refused != 0) return;
  const StepGroup part = step.groups[g];
  const TrainGroupView& group = step.set.groups[part.group];
  const uint32_t tiles = gridDim.x * (blockDim.x / kLanes);
  for (uint32_t place = part.place_begin + (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
       place < part.place_end; place += tiles) {
    const StepPlace own = step.places.places[place];
    const StepUpdate& update = reduce.updates[own.table];
    if (own.row == kNoDeviceRow || update.has_gradients == 0) continue;
    RowRecord record = group.records[own.row];
    if ((record.updates & kRowLive) == 0 || record.key != own.key) continue;
    if ((record.updates & kUpdatesMax) != kUpdatesMax) ++record.updates;
    const float* const sum =
        reduce.sums + part.sums_begin + uint64_t{place - part.place_begin} * group.dim;
    const float accumulator =
        UpdateRow<Vector, kLanes, kStates>(group, update, sum, VectorOf(group, own.row), record);
    __syncwarp(TileMask<kLanes>());  // all lanes have read the record
    if (threadIdx.x % kLanes != 0) continue;
    RowRecord& stored = group.records[own.row];
    stored.updates = record.updates;
    stored.changed = update.change;
    if (group.optimizer.kind == OptimizerKind::kRowwiseAdagrad) stored.accumulator = accumulator;
  }
}

__global__ void EndKernel(TrainStepView step, ReduceView reduce) {
  const bool is_refused = step.found.counts->is_refused != 0;
  for (uint32_t t = threadIdx.x; t < step.table_count; t += blockDim.x) {
    if (!is_refused && reduce.updates[t].has_gradients != 0)
      ++step.set.table_counters[step.tables[t].table].updates;
  }
  if (threadIdx.x != 0) return;
  *reduce.verdict = is_refused ? std::numeric_limits<float>::infinity() : 0.0f;
  if (is_refused) ++*reduce.skipped;
}

template <int kStates>
cudaError_t UpdateGroup(const TrainStepView& step, const ReduceView& reduce, uint32_t g,
                        uint32_t dim, cudaStream_t stream) {
  return WithTiles(dim, reduce.is_aligned, [&]<typename Vector, uint32_t kLanes>() {
    return LaunchKernel<UpdateKernel<Vector, kLanes, kStates>>(
        {.blocks = std::min(Blocks(step.batch.key_count, kThreads / kLanes), kManyBlocks),
         .threads = kThreads,
         .stream = stream},
        step, reduce, g);
  });
}

}  // namespace

cudaError_t UpdateRows(const TrainStepView& step, const ReduceView& reduce,
                       std::span<const StepGroup> groups, cudaStream_t stream) {
  const LaunchShape one{.blocks = 1, .threads = kThreads, .stream = stream};
  cudaError_t error = LaunchKernel<CorrectionKernel>(one, step, reduce);
  for (uint32_t g = 0; g < groups.size() && error == cudaSuccess; ++g) {
    const uint32_t dim = groups[g].dim;
    if (groups[g].states == 0)
      error = UpdateGroup<0>(step, reduce, g, dim, stream);
    else if (groups[g].states == 1)
      error = UpdateGroup<1>(step, reduce, g, dim, stream);
    else
      error = UpdateGroup<2>(step, reduce, g, dim, stream);
  }
  if (error != cudaSuccess) return error;
  return LaunchKernel<EndKernel>(one, step, reduce);
}

}  // namespace hps
