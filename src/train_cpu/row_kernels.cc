#include "train_cpu/row_kernels.h"

#include <cmath>

#include "train_cpu/row_kernel_steps.h"

namespace hps {
namespace {

// Rows of a higher t compute theirs: 32 KiB stay in the caches.
constexpr uint32_t kKnownCorrections = 4096;

}  // namespace

BiasCorrections::BiasCorrections(const SparseOptimizer& optimizer)
    : kind_(optimizer.kind), beta1_(optimizer.beta1), beta2_(optimizer.beta2) {
  // Sparse Adam needs one for all rows of a step.
  if (optimizer.kind != OptimizerKind::kAdam) return;
  known_.resize(kKnownCorrections);
  for (uint32_t t = 1; t < kKnownCorrections; ++t) known_[t] = Compute(t);
}

BiasCorrection BiasCorrections::Compute(uint32_t t) const {
  const double first = 1 - std::pow(beta1_, t);
  const double second = 1 - std::pow(beta2_, t);
  if (kind_ == OptimizerKind::kSparseAdam) return {static_cast<float>(std::sqrt(second) / first)};
  return {static_cast<float>(1 / first), static_cast<float>(1 / second)};
}

const RowKernels& PortableRowKernels() {
  static constexpr RowKernels kKernels = KernelsOf<ScalarMachine>();
  return kKernels;
}

const RowKernels& RowKernelsForMachine() {
  if (const RowKernels* kernels = Avx512RowKernels(); kernels != nullptr) return *kernels;
  if (const RowKernels* kernels = Avx2RowKernels(); kernels != nullptr) return *kernels;
  return PortableRowKernels();
}

}  // namespace hps
