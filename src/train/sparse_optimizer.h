// The optimizers of embedding rows: which one, its constants, and the state that a row keeps.
//
// Only rows that a batch has are updated. With gradient g of row w and learning rate r:
//
//   SGD      w -= r * g
//   AdaGrad  a += g^2;  w -= r * g / (sqrt(a) + epsilon)                 (Duchi et al., 2011)
//   Adam     m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2;
//            w -= r * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)  (Kingma and Ba, 2015)
//
// Adam is lazy: t counts the row's own updates, so that a rare row's first steps are corrected
// exactly. State is float32.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace hps {

enum class OptimizerKind { kSgd, kAdagrad, kAdam };

// A plain value; check it with ValidateOptimizer.
struct SparseOptimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  float epsilon = 1e-8F;          // AdaGrad, Adam
  float initial_accumulator = 0;  // AdaGrad: every element of a new row's state
  float beta1 = 0.9F;             // Adam
  float beta2 = 0.999F;           // Adam

  // float32 values of state for each element of a row.
  size_t states_per_element() const {
    switch (kind) {
      case OptimizerKind::kSgd:
        return 0;
      case OptimizerKind::kAdagrad:
        return 1;
      case OptimizerKind::kAdam:
        return 2;
    }
    return 0;
  }
};

// Errors: INVALID_ARGUMENT: an epsilon or an accumulator that is negative or not finite, a beta
// outside of [0, 1).
absl::Status ValidateOptimizer(const SparseOptimizer& optimizer);

}  // namespace hps
