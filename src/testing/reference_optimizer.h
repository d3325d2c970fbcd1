// The optimizers' formulas (train/sparse_optimizer.h) in float64, on one row: what tests compare
// the implementations with.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "train/sparse_optimizer.h"

namespace hps {

// One of each kind, with constants that all count.
inline std::vector<SparseOptimizer> EveryOptimizer() {
  return {
      {.kind = OptimizerKind::kSgd},
      {.kind = OptimizerKind::kSgd, .weight_decay = 0.05F},
      {.kind = OptimizerKind::kAdagrad, .initial_accumulator = 0.1F, .weight_decay = 0.02F},
      {.kind = OptimizerKind::kAdam, .weight_decay = 0.01F},
      {.kind = OptimizerKind::kMomentum, .momentum = 0.75F, .weight_decay = 0.02F},
      {.kind = OptimizerKind::kNesterov, .momentum = 0.75F, .weight_decay = 0.02F},
      {.kind = OptimizerKind::kRowwiseAdagrad, .initial_accumulator = 0.1F, .weight_decay = 0.02F},
      {.kind = OptimizerKind::kSparseAdam, .beta2 = 0.99F, .weight_decay = 0.01F},
      {.kind = OptimizerKind::kFtrl,
       .initial_accumulator = 0.1F,
       .l1 = 0.25F,
       .l2 = 0.5F,
       .beta = 1}};
}

class ReferenceRow {
 public:
  ReferenceRow(const SparseOptimizer& optimizer, std::span<const float> values)
      : optimizer_(optimizer),
        values_(values.begin(), values.end()),
        first_(values.size(), 0),
        second_(values.size(), optimizer.initial_accumulator) {
    if (is_adam()) second_.assign(values.size(), 0);
  }

  const std::vector<double>& values() const { return values_; }

  // `table_updates` counts this one, too.
  void Update(std::span<const float> gradient, double rate, int table_updates) {
    ++updates_;
    double square_mean = 0;
    for (const double g : gradient) square_mean += g * g / static_cast<double>(gradient.size());
    const int t = optimizer_.kind == OptimizerKind::kAdam ? updates_ : table_updates;
    first_correction_ = 1 - std::pow(optimizer_.beta1, t);
    second_correction_ = 1 - std::pow(optimizer_.beta2, t);
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] -= rate * optimizer_.weight_decay * values_[i];
      if (is_adam())
        UpdateByAdam(i, gradient[i], rate);
      else if (optimizer_.kind == OptimizerKind::kFtrl)
        UpdateByFtrl(i, gradient[i], rate);
      else
        UpdateByGradient(i, gradient[i], rate, square_mean);
    }
  }

 private:
  bool is_adam() const {
    return optimizer_.kind == OptimizerKind::kAdam || optimizer_.kind == OptimizerKind::kSparseAdam;
  }

  void UpdateByGradient(size_t i, double g, double rate, double square_mean) {
    double step = g;
    if (optimizer_.kind == OptimizerKind::kAdagrad) {
      second_[i] += g * g;
      step = g / (std::sqrt(second_[i]) + optimizer_.epsilon);
    } else if (optimizer_.kind == OptimizerKind::kRowwiseAdagrad) {
      second_[i] += square_mean;
      step = g / (std::sqrt(second_[i]) + optimizer_.epsilon);
    } else if (optimizer_.kind != OptimizerKind::kSgd) {
      first_[i] = optimizer_.momentum * first_[i] + g;
      step = optimizer_.kind == OptimizerKind::kNesterov ? g + optimizer_.momentum * first_[i]
                                                         : first_[i];
    }
    values_[i] -= rate * step;
  }

  void UpdateByAdam(size_t i, double g, double rate) {
    first_[i] = optimizer_.beta1 * first_[i] + (1 - double{optimizer_.beta1}) * g;
    second_[i] = optimizer_.beta2 * second_[i] + (1 - double{optimizer_.beta2}) * g * g;
    if (optimizer_.kind == OptimizerKind::kAdam) {
      values_[i] -= rate * (first_[i] / first_correction_) /
                    (std::sqrt(second_[i] / second_correction_) + optimizer_.epsilon);
    } else {
      values_[i] -= rate * std::sqrt(second_correction_) / first_correction_ * first_[i] /
                    (std::sqrt(second_[i]) + optimizer_.epsilon);
    }
  }

  void UpdateByFtrl(size_t i, double g, double rate) {
    const double before = std::sqrt(second_[i]);
    second_[i] += g * g;
    const double after = std::sqrt(second_[i]);
    double& z = first_[i];
    z += g - (after - before) / rate * values_[i];
    values_[i] = std::fabs(z) <= optimizer_.l1
                     ? 0
                     : (std::copysign(optimizer_.l1, z) - z) /
                           ((optimizer_.beta + after) / rate + optimizer_.l2);
  }

  const SparseOptimizer optimizer_;
  std::vector<double> values_;
  std::vector<double> first_;   // b, m or z
  std::vector<double> second_;  // a, v or n
  int updates_ = 0;
  double first_correction_ = 1;
  double second_correction_ = 1;
};

}  // namespace hps
