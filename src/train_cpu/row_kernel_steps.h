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

template <typename Machine>
void UpdateRow(const UpdateRun& run, RowHeader* header, const float* gradient) {
  float* const row = ValuesOf(header);
  const size_t dim = run.sums.dim;
  const SparseOptimizer& optimizer = *run.optimizer;
  ++header->updates;
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      ForElements<Machine>(dim, SgdStep{row, gradient, run.scale, run.learning_rate});
      break;
    case OptimizerKind::kAdagrad:
      ForElements<Machine>(dim, AdagradStep{row, row + dim, gradient, run.scale, run.learning_rate,
                                            optimizer.epsilon});
      break;
    case OptimizerKind::kAdam: {
      const BiasCorrection correction = run.corrections->At(header->updates);
      ForElements<Machine>(
          dim, AdamStep{row, row + dim, row + 2 * dim, gradient, run.scale,
                        run.learning_rate * correction.first, correction.second, &optimizer});
      break;
    }
  }
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

template <typename Machine>
void UpdateRows(const UpdateRun& run) {
  const GradientSums& sums = run.sums;
  const size_t values = sums.dim * (1 + run.optimizer->states_per_element());
  GradientPrefetch prefetch(sums);
  for (size_t row = 0; row < sums.row_count; ++row) {
    const size_t ahead = row + kAhead;
    if (ahead < sums.row_count && run.rows[ahead] != nullptr)
      PrefetchValues<kWrite>(ValuesOf(run.rows[ahead]), values);
    prefetch.Before(row);
    if (run.rows[row] == nullptr) continue;
    // A single gradient is used where it lies.
    const size_t begin = sums.begins[row];
    const float* gradient = run.sum;
    if (sums.gradient_scales == nullptr && sums.begins[row + 1] - begin == 1)
      gradient = GradientAt(sums, begin);
    else
      SumGradients<Machine>(sums, row, run.sum);
    UpdateRow<Machine>(run, run.rows[row], gradient);
  }
}

template <typename Machine>
constexpr RowKernels KernelsOf() {
  return {.pool = PoolRows<Machine>, .update = UpdateRows<Machine>, .sum = SumRows<Machine>};
}

}  // namespace
}  // namespace hps
