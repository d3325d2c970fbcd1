#include "train_cpu/row_kernels.h"

#include <cmath>

#include "train_cpu/row_kernel_steps.h"

namespace hps {
namespace {

// Rows of a higher t compute theirs: 32 KiB stay in the caches.
constexpr uint32_t kKnownCorrections = 4096;

}  // namespace

BiasCorrections::BiasCorrections(const SparseOptimizer& optimizer)
    : beta1_(optimizer.beta1), beta2_(optimizer.beta2) {
  if (optimizer.kind != OptimizerKind::kAdam) return;
  known_.resize(kKnownCorrections);
  for (uint32_t t = 1; t < kKnownCorrections; ++t) known_[t] = Compute(t);
}

BiasCorrection BiasCorrections::Compute(uint32_t t) const {
  return {static_cast<float>(1 / (1 - std::pow(beta1_, t))),
          static_cast<float>(1 / (1 - std::pow(beta2_, t)))};
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
