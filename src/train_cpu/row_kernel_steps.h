// The loops of row_kernels.h, templated on a machine: vectors of kLanes floats, how they are loaded
// and stored, and their arithmetic.
//
// Everything here has internal linkage, because it is compiled once per machine with different
// instruction sets: the linker must never merge two of these copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "train_cpu/row_kernels.h"

namespace hps {
namespace {

constexpr size_t kLineFloats = 16;
// Keys, or rows, between the prefetch of a row and its use.
constexpr size_t kAhead = 12;
// Of wide rows only the first lines are prefetched; the machine's own prefetcher recognizes the
// rest.
constexpr size_t kPrefetchFloatsMax = 256;

struct ScalarMachine {
  static constexpr size_t kLanes = 1;
  using Vector = float;

  static Vector All(float value) { return value; }
  static Vector Load(const float* from) { return *from; }
  static void Store(float* to, Vector value) { *to = value; }
  static Vector Add(Vector a, Vector b) { return a + b; }
  static Vector Subtract(Vector a, Vector b) { return a - b; }
  static Vector Multiply(Vector a, Vector b) { return a * b; }
  static Vector Divide(Vector a, Vector b) { return a / b; }
  static Vector Root(Vector a) { return __builtin_sqrtf(a); }
  // As the processor does it: of equal values the second, which matters for zeros of both signs.
  static Vector Least(Vector a, Vector b) { return a < b ? a : b; }
  static Vector Largest(Vector a, Vector b) { return a > b ? a : b; }
};

enum Purpose { kRead, kWrite };

template <Purpose purpose = kRead>
inline void PrefetchValues(const float* values, size_t count) {
  for (size_t i = 0; i < std::min(count, kPrefetchFloatsMax); i += kLineFloats)
    __builtin_prefetch(values + i, purpose == kWrite ? 1 : 0);
}

// Applies `step` to whole vectors, then to what is left, element by element. `step` is an object
// with a template operator()<Machine>(offset).
template <typename Machine, typename Step>
inline void ForElements(size_t dim, const Step& step) {
  size_t at = 0;
  for (; at + Machine::kLanes <= dim; at += Machine::kLanes) step.template Do<Machine>(at);
  for (; at < dim; ++at) step.template Do<ScalarMachine>(at);
}

// to = row * factor
struct ScaleStep {
  float* to;
  const float* row;
  float factor;

  template <typename M>
  void Do(size_t at) const {
    M::Store(to + at, M::Multiply(M::Load(row + at), M::All(factor)));
  }
};

struct CopyStep {
  float* to;
  const float* row;

  template <typename M>
  void Do(size_t at) const {
    M::Store(to + at, M::Load(row + at));
  }
};

struct AddStep {
  float* to;
  const float* row;

  template <typename M>
  void Do(size_t at) const {
    M::Store(to + at, M::Add(M::Load(to + at), M::Load(row + at)));
  }
};

// to += row * factor
struct AddScaledStep {
  float* to;
  const float* row;
  float factor;

  template <typename M>
  void Do(size_t at) const {
    M::Store(to + at, M::Add(M::Load(to + at), M::Multiply(M::Load(row + at), M::All(factor))));
  }
};

struct DivideStep {
  float* to;
  float divisor;

  template <typename M>
  void Do(size_t at) const {
    M::Store(to + at, M::Divide(M::Load(to + at), M::All(divisor)));
  }
};

template <typename Machine>
void PoolBag(const PoolRun& run, size_t begin, size_t end, float* out) {
  if (begin == end) {
    std::fill_n(out, run.dim, 0.0F);
    return;
  }
  if (run.weights == nullptr) {
    ForElements<Machine>(run.dim, CopyStep{out, run.rows[begin]});
    for (size_t i = begin + 1; i < end; ++i)
      ForElements<Machine>(run.dim, AddStep{out, run.rows[i]});
  } else {
    ForElements<Machine>(run.dim, ScaleStep{out, run.rows[begin], run.weights[begin]});
    for (size_t i = begin + 1; i < end; ++i)
      ForElements<Machine>(run.dim, AddScaledStep{out, run.rows[i], run.weights[i]});
  }
  if (run.is_mean && end - begin > 1)
    ForElements<Machine>(run.dim, DivideStep{out, static_cast<float>(end - begin)});
}

template <typename Machine>
void PoolRows(const PoolRun& run) {
  const auto begin_of = [&run](size_t bag) {
    return run.offsets == nullptr ? bag : static_cast<size_t>(run.offsets[bag] - run.offset_base);
  };
  const size_t key_count = begin_of(run.bag_count);
  size_t prefetched = begin_of(0);
  for (size_t bag = 0; bag < run.bag_count; ++bag) {
    const size_t begin = begin_of(bag);
    const size_t end = begin_of(bag + 1);
    for (; prefetched < std::min(key_count, end + kAhead); ++prefetched)
      PrefetchValues(run.rows[prefetched], run.dim);
    if (bag + kAhead < run.bag_count)
      PrefetchValues<kWrite>(run.out + (bag + kAhead) * run.out_stride, run.dim);
    PoolBag<Machine>(run, begin, end, run.out + bag * run.out_stride);
  }
}

// row -= rate * row
struct DecayStep {
  float* row;
  float rate;

  template <typename M>
  void Do(size_t at) const {
    const auto w = M::Load(row + at);
    M::Store(row + at, M::Subtract(w, M::Multiply(M::All(rate), w)));
  }
};

struct SgdStep {
  float* row;
  const float* gradient;
  float scale;
  float rate;

  template <typename M>
  void Do(size_t at) const {
    const auto g = M::Multiply(M::Load(gradient + at), M::All(scale));
    M::Store(row + at, M::Subtract(M::Load(row + at), M::Multiply(M::All(rate), g)));
  }
};

template <bool kIsNesterov>
struct MomentumStep {
  float* row;
  float* buffer;
  const float* gradient;
  float scale;
  float rate;
  float momentum;

  template <typename M>
  void Do(size_t at) const {
    const auto g = M::Multiply(M::Load(gradient + at), M::All(scale));
    const auto b = M::Add(M::Multiply(M::All(momentum), M::Load(buffer + at)), g);
    const auto step = kIsNesterov ? M::Add(g, M::Multiply(M::All(momentum), b)) : b;
    M::Store(buffer + at, b);
    M::Store(row + at, M::Subtract(M::Load(row + at), M::Multiply(M::All(rate), step)));
  }
};

struct AdagradStep {
  float* row;
  float* accumulator;
  const float* gradient;
  float scale;
  float rate;
  float epsilon;

  template <typename M>
  void Do(size_t at) const {
    const auto g = M::Multiply(M::Load(gradient + at), M::All(scale));
    const auto sum = M::Add(M::Load(accumulator + at), M::Multiply(g, g));
    const auto divisor = M::Add(M::Root(sum), M::All(epsilon));
    M::Store(accumulator + at, sum);
    M::Store(row + at,
             M::Subtract(M::Load(row + at), M::Divide(M::Multiply(M::All(rate), g), divisor)));
  }
};

struct AdamStep {
  float* row;
  float* first;
  float* second;
  const float* gradient;
  float scale;
  float rate;  // with the first average's correction
  float second_correction;
  const SparseOptimizer* optimizer;

  template <typename M>
  void Do(size_t at) const {
    const auto g = M::Multiply(M::Load(gradient + at), M::All(scale));
    const auto m = M::Add(M::Multiply(M::All(optimizer->beta1), M::Load(first + at)),
                          M::Multiply(M::All(1 - optimizer->beta1), g));
    const auto v = M::Add(M::Multiply(M::All(optimizer->beta2), M::Load(second + at)),
                          M::Multiply(M::All(1 - optimizer->beta2), M::Multiply(g, g)));
    const auto divisor =
        M::Add(M::Root(M::Multiply(v, M::All(second_correction))), M::All(optimizer->epsilon));
    M::Store(first + at, m);
    M::Store(second + at, v);
    M::Store(row + at,
             M::Subtract(M::Load(row + at), M::Divide(M::Multiply(M::All(rate), m), divisor)));
  }
};

// The soft threshold of z is z less its part within [-l1, l1]: 0 where |z| <= l1.
struct FtrlStep {
  float* row;
  float* squares;
  float* linear;
  const float* gradient;
  float scale;
  float inverse_rate;
  const SparseOptimizer* optimizer;

  template <typename M>
  void Do(size_t at) const {
    const auto g = M::Multiply(M::Load(gradient + at), M::All(scale));
    const auto before = M::Load(squares + at);
    const auto n = M::Add(before, M::Multiply(g, g));
    const auto root = M::Root(n);
    const auto sigma = M::Multiply(M::Subtract(root, M::Root(before)), M::All(inverse_rate));
    const auto z =
        M::Add(M::Load(linear + at), M::Subtract(g, M::Multiply(sigma, M::Load(row + at))));
    const auto within = M::Least(M::Largest(z, M::All(-optimizer->l1)), M::All(optimizer->l1));
    const auto divisor =
        M::Add(M::Multiply(M::Add(M::All(optimizer->beta), root), M::All(inverse_rate)),
               M::All(optimizer->l2));
    M::Store(squares + at, n);
    M::Store(linear + at, z);
    M::Store(row + at, M::Divide(M::Subtract(within, z), divisor));
  }
};

// The sum of the squares of gradient * scale. Every machine adds in the order of AVX-512: it makes
// 16 partial sums, each of every 16th element; then it adds the upper half of the partial sums to
// the lower half, until one sum is left.
template <typename Machine>
float SumOfSquares(const float* gradient, float scale, size_t dim) {
  constexpr size_t kVectors = kLineFloats / Machine::kLanes;
  typename Machine::Vector vectors[kVectors];
  for (auto& vector : vectors) vector = Machine::All(0);
  size_t at = 0;
  for (; at + kLineFloats <= dim; at += kLineFloats) {
    for (size_t i = 0; i < kVectors; ++i) {
      const auto g = Machine::Multiply(Machine::Load(gradient + at + i * Machine::kLanes),
                                       Machine::All(scale));
      vectors[i] = Machine::Add(vectors[i], Machine::Multiply(g, g));
    }
  }
  float sums[kLineFloats];
  for (size_t i = 0; i < kVectors; ++i) Machine::Store(sums + i * Machine::kLanes, vectors[i]);
  for (size_t i = 0; at < dim; ++at, ++i) {
    const float g = gradient[at] * scale;
    sums[i] += g * g;
  }
  for (size_t half = kLineFloats / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// What row-wise AdaGrad multiplies the gradient by, after the accumulator has got the gradient.
template <typename Machine>
float RowwiseRate(const UpdateRun& run, float* accumulator, const float* gradient) {
  const size_t dim = run.sums.dim;
  *accumulator += SumOfSquares<Machine>(gradient, run.scale, dim) / static_cast<float>(dim);
  return run.learning_rate / (ScalarMachine::Root(*accumulator) + run.optimizer->epsilon);
}

inline const float* GradientAt(const GradientSums& sums, size_t i) {
  return sums.gradients[sums.gradient_rows[i]];
}

// Writes the sum of the row's gradients, in the order of the keys.
template <typename Machine>
void SumGradients(const GradientSums& sums, size_t row, float* out) {
  const size_t begin = sums.begins[row];
  const size_t end = sums.begins[row + 1];
  if (sums.gradient_scales == nullptr) {
    ForElements<Machine>(sums.dim, CopyStep{out, GradientAt(sums, begin)});
    for (size_t i = begin + 1; i < end; ++i)
      ForElements<Machine>(sums.dim, AddStep{out, GradientAt(sums, i)});
  } else {
    ForElements<Machine>(sums.dim,
                         ScaleStep{out, GradientAt(sums, begin), sums.gradient_scales[begin]});
    for (size_t i = begin + 1; i < end; ++i)
      ForElements<Machine>(sums.dim,
                           AddScaledStep{out, GradientAt(sums, i), sums.gradient_scales[i]});
  }
}

// Prefetches the gradients of a row some time before they are summed.
class GradientPrefetch {
 public:
  explicit GradientPrefetch(const GradientSums& sums)
      : sums_(sums), count_(sums.row_count == 0 ? 0 : sums.begins[sums.row_count]) {}

  void Before(size_t row) {
    for (const size_t end = std::min<size_t>(count_, sums_.begins[row + 1] + kAhead); next_ < end;
         ++next_)
      PrefetchValues(GradientAt(sums_, next_), sums_.dim);
  }

 private:
  const GradientSums& sums_;
  const size_t count_;
  size_t next_ = 0;
};

template <typename Machine>
void SumRows(const SumRun& run) {
  GradientPrefetch prefetch(run.sums);
  for (size_t row = 0; row < run.sums.row_count; ++row) {
    prefetch.Before(row);
    SumGradients<Machine>(run.sums, row, run.out[row]);
  }
}

// Calls update(header, values, gradient) for each row, with the sum of its gradients. A template,
// so that the optimizer is chosen once for all rows.
template <typename Machine, typename Update>
void ForRows(const UpdateRun& run, const Update& update) {
  const GradientSums& sums = run.sums;
  const size_t values = sums.dim + run.optimizer->state_count(sums.dim);
  const float decay = run.learning_rate * run.optimizer->weight_decay;
  GradientPrefetch prefetch(sums);
  for (size_t row = 0; row < sums.row_count; ++row) {
    const size_t ahead = row + kAhead;
    if (ahead < sums.row_count && run.rows[ahead] != nullptr)
      PrefetchValues<kWrite>(ValuesOf(run.rows[ahead]), values);
    prefetch.Before(row);
    RowHeader* const header = run.rows[row];
    if (header == nullptr) continue;
    // A single gradient is used where it lies.
    const size_t begin = sums.begins[row];
    const float* gradient = run.sum;
    if (sums.gradient_scales == nullptr && sums.begins[row + 1] - begin == 1)
      gradient = GradientAt(sums, begin);
    else
      SumGradients<Machine>(sums, row, run.sum);
    ++header->updates;
    if (decay != 0) ForElements<Machine>(sums.dim, DecayStep{ValuesOf(header), decay});
    update(header, ValuesOf(header), gradient);
  }
}

template <typename Machine>
void UpdateRowsByAdam(const UpdateRun& run) {
  const size_t dim = run.sums.dim;
  const bool is_sparse = run.optimizer->kind == OptimizerKind::kSparseAdam;
  BiasCorrection correction;
  if (is_sparse) correction = run.corrections->At(run.table_updates);
  ForRows<Machine>(run, [&](const RowHeader* header, float* row, const float* gradient) {
    if (!is_sparse) correction = run.corrections->At(header->updates);
    ForElements<Machine>(
        dim, AdamStep{row, row + dim, row + 2 * dim, gradient, run.scale,
                      run.learning_rate * correction.first, correction.second, run.optimizer});
  });
}

template <typename Machine>
void UpdateRows(const UpdateRun& run) {
  const size_t dim = run.sums.dim;
  const SparseOptimizer& optimizer = *run.optimizer;
  const float scale = run.scale;
  const float rate = run.learning_rate;
  // Each changes one row, with its state behind it.
  const auto for_rows = [&](const auto& update) {
    ForRows<Machine>(run, [&](const RowHeader* /*header*/, float* row, const float* gradient) {
      update(row, row + dim, gradient);
    });
  };
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      return for_rows([&](float* row, float* /*state*/, const float* gradient) {
        ForElements<Machine>(dim, SgdStep{row, gradient, scale, rate});
      });
    case OptimizerKind::kMomentum:
      return for_rows([&](float* row, float* state, const float* gradient) {
        ForElements<Machine>(
            dim, MomentumStep<false>{row, state, gradient, scale, rate, optimizer.momentum});
      });
    case OptimizerKind::kNesterov:
      return for_rows([&](float* row, float* state, const float* gradient) {
        ForElements<Machine>(
            dim, MomentumStep<true>{row, state, gradient, scale, rate, optimizer.momentum});
      });
    case OptimizerKind::kAdagrad:
      return for_rows([&](float* row, float* state, const float* gradient) {
        ForElements<Machine>(dim,
                             AdagradStep{row, state, gradient, scale, rate, optimizer.epsilon});
      });
    case OptimizerKind::kRowwiseAdagrad:
      return for_rows([&](float* row, float* state, const float* gradient) {
        const float row_rate = RowwiseRate<Machine>(run, state, gradient);
        ForElements<Machine>(dim, SgdStep{row, gradient, scale, row_rate});
      });
    case OptimizerKind::kAdam:
    case OptimizerKind::kSparseAdam:
      return UpdateRowsByAdam<Machine>(run);
    case OptimizerKind::kFtrl:
      return for_rows([&](float* row, float* state, const float* gradient) {
        ForElements<Machine>(
            dim, FtrlStep{row, state, state + dim, gradient, scale, 1 / rate, &optimizer});
      });
  }
}

template <typename Machine>
constexpr RowKernels KernelsOf() {
  return {.pool = PoolRows<Machine>, .update = UpdateRows<Machine>, .sum = SumRows<Machine>};
}

}  // namespace
}  // namespace hps
