// Apply: sums of gradients to rows and states, by the formulas of train/sparse_optimizer.h and in
// the order of operations of the host's kernels (train_cpu/row_kernel_steps.h).
#include <algorithm>
#include <limits>

#include "gpu/kernel_launch.h"
#include "train_gpu/kernels/arguments.cuh"
#include "train_gpu/kernels/elements.cuh"
#include "train_gpu/kernels/grid.cuh"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// What the elements of a row have in common.
struct RowFactors {
  float rate;     // of row-wise AdaGrad and of Adam: with the row's factor
  float decay;    // the learning rate times the weight decay
  float inverse;  // 1 / the learning rate, of FTRL
  float second;   // Adam's second correction
};

// An element of the vector, or four of them, with their one or two values of state.
template <typename Vector>
struct Element {
  Vector w, a, b;
};

// `g`: the scaled gradient. `kStates`: values of state, so that a kernel has no code of optimizers
// with another number.
template <int kStates>
__device__ inline void UpdateElement(const SparseOptimizer& o, const RowFactors& r, float g,
                                     Element<float>& element) {
  auto& [w, a, b] = element;
  if (o.weight_decay != 0) w = w - r.decay * w;
  if constexpr (kStates == 0) {  // SGD and row-wise AdaGrad
    w = w - r.rate * g;
  } else if constexpr (kStates == 1) {
    if (o.kind == OptimizerKind::kAdagrad) {
      a = a + g * g;
      w = w - r.rate * g / (sqrtf(a) + o.epsilon);
      return;
    }
    a = o.momentum * a + g;
    w = w - r.rate * (o.kind == OptimizerKind::kNesterov ? g + o.momentum * a : a);
  } else if (o.kind == OptimizerKind::kFtrl) {
    const float before = a;
    a = a + g * g;
    const float root = sqrtf(a);
    b = b + (g - (root - sqrtf(before)) * r.inverse * w);
    const float within = fminf(fmaxf(b, -o.l1), o.l1);
    w = (within - b) / ((o.beta + root) * r.inverse + o.l2);
  } else {  // Adam
    a = o.beta1 * a + (1 - o.beta1) * g;
    b = o.beta2 * b + (1 - o.beta2) * (g * g);
    w = w - r.rate * a / (sqrtf(b * r.second) + o.epsilon);
  }
}
template <int kStates>
__device__ inline void UpdateElement(const SparseOptimizer& o, const RowFactors& r, float4 g,
                                     Element<float4>& element) {
  auto& [w, a, b] = element;
  const auto update = [&](float gradient, float& each_w, float& each_a, float& each_b) {
    Element<float> each{each_w, each_a, each_b};
    UpdateElement<kStates>(o, r, gradient, each);
    each_w = each.w;
    each_a = each.a;
    each_b = each.b;
  };
  update(g.x, w.x, a.x, b.x);
  update(g.y, w.y, a.y, b.y);
  update(g.z, w.z, a.z, b.z);
  update(g.w, w.w, a.w, b.w);
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

static_assert(sizeof(TrainStepView) + sizeof(ReduceView) + sizeof(Arguments) <= 4096,
              "the parameters of DecideKernel");

// Decides whether the update may change rows, and counts it. Sparse Adam has one correction for all
// rows of a table. `updates`: of the step's tables, if they are few.
__global__ void DecideKernel(TrainStepView step, ReduceView reduce, Arguments updates) {
  updates.WriteTo(reduce.updates);
  __syncthreads();
  const bool is_refused = step.found.counts->is_refused != 0;
  for (uint32_t t = threadIdx.x; t < step.table_count; t += blockDim.x) {
    const uint32_t table = step.tables[t].table;
    const TrainGroupView& group = step.set.groups[step.set.tables[table].group];
    uint32_t& count = step.set.table_counters[table].updates;
    if (group.optimizer.kind == OptimizerKind::kSparseAdam)
      reduce.updates[t].correction = CorrectionAt(group, count + 1).x;
    if (!is_refused && reduce.updates[t].has_gradients != 0) ++count;
  }
  if (threadIdx.x != 0) return;
  if (!is_refused) return;
  *reduce.verdict = std::numeric_limits<float>::infinity();
  ++*reduce.skipped;
}

// A row that is updated, as one lane knows it.
struct UpdatedRow {
  std::byte* row;  // null: there is none, or it is left alone
  uint32_t number;
  uint64_t random_state;  // of a type of 16 bits; see RoundingState
  uint32_t updates;       // this one included
  float accumulator;      // of row-wise AdaGrad
  RowFactors factors;
};

__device__ RowFactors FactorsOf(const TrainGroupView& group, const StepUpdate& update,
                                uint32_t updates) {
  const SparseOptimizer& optimizer = group.optimizer;
  RowFactors factors{.rate = update.rate,
                     .decay = update.rate * optimizer.weight_decay,
                     .inverse = 1 / update.rate,
                     .second = 1};
  if (optimizer.kind == OptimizerKind::kAdam) {
    const float2 correction = CorrectionAt(group, updates);
    factors.rate = update.rate * correction.x;
    factors.second = correction.y;
  } else if (optimizer.kind == OptimizerKind::kSparseAdam) {
    factors.rate = update.rate * update.correction;
  }
  return factors;
}

// The row of a run, which begins with this sorted position; its record has this update then. A row
// that was erased since the step took it is left alone, and so is the one that has its memory now.
__device__ UpdatedRow TakeRow(const TrainStepView& step, const ReduceView& reduce,
                              const TrainGroupView& group, uint32_t s) {
  UpdatedRow own{};
  const uint32_t v = step.order.sorted[s];
  const uint32_t f = FeatureAt(step, v);
  const FeatureView& feature = step.features[f];
  const StepUpdate update = reduce.updates[feature.step_table];
  own.number = step.found.rows[v];
  if (own.number == kNoDeviceRow || update.has_gradients == 0) return own;
  const Key key = step.batch.keys[feature.key_begin + (v - step.starts[f])];
  RowRecord& record = group.records[own.number];
  const uint32_t before = record.updates;
  if ((before & kRowLive) == 0 || record.key != key) return own;
  own.row = RowAt(group, own.number);
  own.updates = min((before & kUpdatesMax) + 1, kUpdatesMax);
  own.accumulator = record.accumulator;
  own.factors = FactorsOf(group, update, own.updates);
  if (group.dtype != Dtype::kFloat32)
    own.random_state = RoundingState(key, step.set.tables[feature.table].initializer.seed);
  record.updates = (before & ~kUpdatesMax) | own.updates;
  record.changed = update.change;
  return own;
}

template <uint32_t kLanes>
__device__ std::byte* AddressOfLane(const UpdatedRow& own, uint32_t lane) {
  return reinterpret_cast<std::byte*>(__shfl_sync(TileMask<kLanes>(),
                                                  reinterpret_cast<unsigned long long>(own.row),
                                                  static_cast<int>(lane), kLanes));
}

// The row of another lane of the tile, as far as an optimizer with these states needs it.
template <uint32_t kLanes, int kStates>
__device__ UpdatedRow RowOfLane(const TrainGroupView& group, const UpdatedRow& own, uint32_t lane) {
  const auto told = [lane](auto value) {
    return __shfl_sync(TileMask<kLanes>(), value, static_cast<int>(lane), kLanes);
  };
  UpdatedRow row{};
  row.row = AddressOfLane<kLanes>(own, lane);
  row.factors.rate = told(own.factors.rate);
  if (group.optimizer.weight_decay != 0) row.factors.decay = told(own.factors.decay);
  if constexpr (kStates == 2) {
    row.factors.inverse = told(own.factors.inverse);
    row.factors.second = told(own.factors.second);
  }
  if (group.dtype != Dtype::kFloat32) {
    row.random_state = told(static_cast<unsigned long long>(own.random_state));
    row.updates = told(own.updates);
  }
  return row;
}

// Some columns of a row with their states and gradients. `kStates`: values of state behind each of
// the vector.
template <typename Vector, int kStates>
struct Columns {
  RawElements<Vector> raw;
  Vector gradient;  // the sum
  Vector a, b;

  __device__ static Vector* StateAt(const TrainGroupView& group, std::byte* row, uint32_t column,
                                    uint32_t number) {
    return reinterpret_cast<Vector*>(StateOf(group, row) + number * group.dim + column);
  }

  __device__ static Columns Read(const TrainGroupView& group, std::byte* row, const float* sum,
                                 uint32_t column) {
    return {.raw = LoadRaw<Vector>(row, column, group.dtype),
            .gradient = *reinterpret_cast<const Vector*>(sum + column),
            .a = kStates > 0 ? *StateAt(group, row, column, 0) : Zero<Vector>(),
            .b = kStates > 1 ? *StateAt(group, row, column, 1) : Zero<Vector>()};
  }

  __device__ void Update(const TrainGroupView& group, const UpdatedRow& own, float scale,
                         uint32_t column) const {
    Element<Vector> element{Converted(raw, group.dtype), a, b};
    UpdateElement<kStates>(group.optimizer, own.factors, Times(gradient, scale), element);
    if (group.dtype != Dtype::kFloat32) {
      element.w = RoundedElements(element.w, group.dtype, column,
                                  RoundingBits(own.random_state, own.updates, column / 4));
    }
    Store(own.row, column, element.w, group.dtype);
    if (kStates > 0) *StateAt(group, own.row, column, 0) = element.a;
    if (kStates > 1) *StateAt(group, own.row, column, 1) = element.b;
  }
};

// The lanes of a tile whose rows are updated, some at a time.
template <uint32_t kAtOnce>
struct LaneGroups {
  uint32_t rest;  // a bit for each
  uint32_t lanes[kAtOnce];
  uint32_t count;  // of `lanes`

  __device__ bool Next() {
    count = 0;
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (rest == 0) continue;
      lanes[i] = static_cast<uint32_t>(__ffs(static_cast<int>(rest)) - 1);
      rest &= rest - 1;
      ++count;
    }
    return count != 0;
  }
};

// The sum of the squares of the lane's gradient. `sums`: that of lane 0; the next is `dim` behind.
template <typename Vector, uint32_t kLanes>
__device__ float SquaresOfRows(uint32_t taken, const float* sums, uint32_t dim, float scale) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  constexpr uint32_t kAtOnce = 4;
  const uint32_t lane = threadIdx.x % kLanes;
  float own = 0;
  for (LaneGroups<kAtOnce> groups{.rest = taken}; groups.Next();) {
    float squares[kAtOnce] = {};
    for (uint32_t column = lane * kWidth; column < dim; column += kLanes * kWidth) {
      Vector gradients[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (i < groups.count) {
          gradients[i] = *reinterpret_cast<const Vector*>(sums + groups.lanes[i] * dim + column);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (i < groups.count) squares[i] += SumOfSquares(Times(gradients[i], scale));
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (i >= groups.count) continue;
      for (uint32_t reach = kLanes / 2; reach > 0; reach /= 2)
        squares[i] +=
            __shfl_xor_sync(TileMask<kLanes>(), squares[i], static_cast<int>(reach), kLanes);
      if (lane == groups.lanes[i]) own = squares[i];
    }
  }
  return own;
}

// A tile takes as many sorted positions as it has lanes, and updates the rows whose runs begin
// there: some at a time, whose reads are all under way before the first is used.
template <typename Vector, uint32_t kLanes, int kStates>
__global__ void __launch_bounds__(kThreads, kStates == 0 ? kBlocksOnSm : kBlocksOnSm - 1)
    UpdateKernel(TrainStepView step, ReduceView reduce, uint32_t g) {
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(float);
  constexpr uint32_t kAtOnce = kStates == 0 ? 4 : 2;
  if (step.found.counts->is_refused != 0) return;
  // Copies are not read again behind each store.
  const StepGroup part = step.groups[g];
  const TrainGroupView group = step.set.groups[part.group];
  const bool is_rowwise = group.optimizer.kind == OptimizerKind::kRowwiseAdagrad;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t first_lane = threadIdx.x % kWarpLanes - lane;
  const uint32_t mask = TileMask<kLanes>();
  const uint32_t tiles = gridDim.x * (blockDim.x / kLanes);
  const uint32_t* const firsts = step.order.sorted_firsts;
  for (uint32_t base = part.begin + (blockIdx.x * blockDim.x + threadIdx.x) / kLanes * kLanes;
       base < part.end; base += tiles * kLanes) {
    const uint32_t s = base + lane;
    const bool begins = s < part.end && (s == part.begin || firsts[s - 1] != firsts[s]);
    UpdatedRow own{};
    if (begins) own = TakeRow(step, reduce, group, s);
    const uint32_t taken = (__ballot_sync(mask, own.row != nullptr) & mask) >> first_lane;
    const float* const sums =
        reduce.sums + part.sums_begin + uint64_t{base - part.begin} * group.dim;
    if (kStates == 0 && is_rowwise) {
      own.accumulator += SquaresOfRows<Vector, kLanes>(taken, sums, group.dim, reduce.scale) /
                         static_cast<float>(group.dim);
      own.factors.rate = own.factors.rate / (sqrtf(own.accumulator) + group.optimizer.epsilon);
      if (own.row != nullptr) group.records[own.number].accumulator = own.accumulator;
    }
    for (LaneGroups<kAtOnce> groups{.rest = taken}; groups.Next();) {
      for (uint32_t column = lane * kWidth; column - lane * kWidth < group.dim;
           column += kLanes * kWidth) {
        Columns<Vector, kStates> columns[kAtOnce];
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (i >= groups.count) break;
          std::byte* const row = AddressOfLane<kLanes>(own, groups.lanes[i]);
          if (column < group.dim) {
            columns[i] = Columns<Vector, kStates>::Read(group, row,
                                                        sums + groups.lanes[i] * group.dim, column);
          }
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (i >= groups.count) break;
          const UpdatedRow row = RowOfLane<kLanes, kStates>(group, own, groups.lanes[i]);
          if (column < group.dim) columns[i].Update(group, row, reduce.scale, column);
        }
      }
    }
  }
}

template <int kStates>
cudaError_t UpdateGroup(const TrainStepView& step, const ReduceView& reduce, uint32_t g,
                        std::span<const StepGroup> groups, cudaStream_t stream) {
  // Where gradients lie does not matter here, so that the order of additions depends on the batch
  // alone. Sums of a group are behind those of the groups before it.
  const bool is_aligned = std::all_of(groups.begin(), groups.end(),
                                      [](const StepGroup& each) { return each.dim % 4 == 0; });
  return WithTiles(groups[g].dim, is_aligned, [&]<typename Vector, uint32_t kLanes>() {
    return LaunchKernel<UpdateKernel<Vector, kLanes, kStates>>(
        {.blocks = std::min(Blocks(step.batch.key_count, kThreads), kManyBlocks),
         .threads = kThreads,
         .stream = stream},
        step, reduce, g);
  });
}

}  // namespace

cudaError_t UpdateRows(const TrainStepView& step, const ReduceView& reduce,
                       std::span<const StepUpdate> updates, std::span<const StepGroup> groups,
                       cudaStream_t stream) {
  std::span<const std::byte> bytes = std::as_bytes(updates);
  cudaError_t error = cudaSuccess;
  if (bytes.size() > Arguments::kBytesMax) {
    error =
        WriteToDevice(static_cast<std::byte*>(static_cast<void*>(reduce.updates)), bytes, stream);
    bytes = {};
  }
  if (error != cudaSuccess) return error;
  error = LaunchKernel<DecideKernel>({.blocks = 1, .threads = kThreads, .stream = stream}, step,
                                     reduce, Arguments::Of(bytes));
  for (uint32_t g = 0; g < groups.size() && error == cudaSuccess; ++g) {
    if (groups[g].states == 0)
      error = UpdateGroup<0>(step, reduce, g, groups, stream);
    else if (groups[g].states == 1)
      error = UpdateGroup<1>(step, reduce, g, groups, stream);
    else
      error = UpdateGroup<2>(step, reduce, g, groups, stream);
  }
  return error;
}

}  // namespace hps
