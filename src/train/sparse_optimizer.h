// The optimizers of embedding rows: which one, its constants, and the state that a row keeps.
//
// Only rows that a batch has are updated. With gradient g of row w, of `dim` elements, and learning
// rate r; t counts updates, and begins with 1:
//
//   SGD        w -= r * g
//   momentum   b = mu * b + g;  w -= r * b                       (torch.optim.SGD, dampening 0)
//   Nesterov   b = mu * b + g;  w -= r * (g + mu * b)            (the same, nesterov=True)
//   AdaGrad    a += g^2;  w -= r * g / (sqrt(a) + epsilon)                 (Duchi et al., 2011)
//   row-wise AdaGrad: one value of state for the row
//              a += mean(g^2);  w -= r / (sqrt(a) + epsilon) * g
//              (FBGEMM's EXACT_ROWWISE_ADAGRAD; Mudigere et al., 2022)
//   Adam       m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2;
//              w -= r * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
//              (Kingma and Ba, 2015)
//   sparse Adam: m and v as above;
//              w -= r * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)
//              (torch.optim.SparseAdam)
//   FTRL       n' = n + g^2;  z += g - (sqrt(n') - sqrt(n)) / r * w;  n = n';
//              w = 0 if |z| <= l1, else (sign(z) * l1 - z) / ((beta + sqrt(n)) / r + l2)
//              (FTRL-Proximal; McMahan et al., 2013)
//
// Adam is lazy: t counts the row's own updates, so that a rare row's first steps are corrected
// exactly. In sparse Adam, t counts the table's updates.
//
// Weight decay is decoupled, as in AdamW (Loshchilov and Hutter, 2019): w -= r * decay * w, before
// the update, for the rows of the batch. FTRL has none.
//
// State is float32. The order of each operation is in train_cpu/row_kernel_steps.h.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace hps {

// Python gives the number.
enum class OptimizerKind {
  kSgd,
  kAdagrad,
  kAdam,
  kMomentum,
  kNesterov,
  kRowwiseAdagrad,
  kSparseAdam,
  kFtrl
};

// A plain value; check it with ValidateOptimizer.
struct SparseOptimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  float epsilon = 1e-8F;          // AdaGrad, Adam
  float initial_accumulator = 0;  // AdaGrad, FTRL: a or n of a new row
  float beta1 = 0.9F;             // Adam
  float beta2 = 0.999F;           // Adam
  float momentum = 0;             // momentum, Nesterov: mu
  float l1 = 0;                   // FTRL
  float l2 = 0;                   // FTRL
  float beta = 0;                 // FTRL
  float weight_decay = 0;         // all but FTRL

  bool operator==(const SparseOptimizer&) const = default;

  // float32 values of state of a row. They follow the vector, in the order of the formulas: b; a;
  // m, v; n, z.
  size_t state_count(size_t dim) const {
    switch (kind) {
      case OptimizerKind::kSgd:
        return 0;
      case OptimizerKind::kRowwiseAdagrad:
        return 1;
      case OptimizerKind::kAdagrad:
      case OptimizerKind::kMomentum:
      case OptimizerKind::kNesterov:
        return dim;
      case OptimizerKind::kAdam:
      case OptimizerKind::kSparseAdam:
      case OptimizerKind::kFtrl:
        return 2 * dim;
    }
    return 0;
  }
};

// Errors: INVALID_ARGUMENT: a constant that is negative or not finite; a beta or a momentum of 1 or
// more; weight decay of FTRL; an FTRL that could divide by 0.
absl::Status ValidateOptimizer(const SparseOptimizer& optimizer);

// Writes the state of a new row of `dim` elements. REQUIRES: state.size() is state_count(dim).
void InitializeState(const SparseOptimizer& optimizer, size_t dim, std::span<float> state);

}  // namespace hps
