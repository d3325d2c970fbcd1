// The loops over rows: pooling, and the optimizers' updates.
//
// Bound: the bytes of rows, outputs and gradients, each moved once. Every element passes through
// the same operations in the same order in each implementation (no fused multiply-add), so that
// all of them give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/sparse_optimizer.h"
#include "train_cpu/row_layout.h"

namespace hps {

struct PoolRun {
  const float* const* rows = nullptr;  // [keys]: the vector of each key
  const int64_t* offsets = nullptr;    // [bags + 1]; null: every key is a bag
  int64_t offset_base = 0;             // the offset of rows[0]
  const float* weights = nullptr;      // [keys]; null: 1
  bool is_mean = false;
  size_t bag_count = 0;
  size_t dim = 0;
  float* out = nullptr;   // [bags, dim]
  size_t out_stride = 0;  // float32 values from one bag to the next
};

// What Adam's averages are multiplied by.
struct BiasCorrection {
  float first = 1;   // 1 / (1 - beta1^t); sparse Adam: sqrt(1 - beta2^t) / (1 - beta1^t)
  float second = 1;  // 1 / (1 - beta2^t); sparse Adam: 1
};

class BiasCorrections {
 public:
  explicit BiasCorrections(const SparseOptimizer& optimizer);

  // REQUIRES: t > 0.
  BiasCorrection At(uint32_t t) const { return t < known_.size() ? known_[t] : Compute(t); }

 private:
  BiasCorrection Compute(uint32_t t) const;

  const OptimizerKind kind_;
  const double beta1_;
  const double beta2_;
  std::vector<BiasCorrection> known_;
};

// Which gradients of a batch's outputs each of its rows sums up.
struct GradientSums {
  const uint32_t* begins = nullptr;         // [row_count + 1]: a row's part of the arrays below
  const uint32_t* gradient_rows = nullptr;  // the outputs whose gradients belong to the row
  const float* gradient_scales = nullptr;   // their factors; null: 1
  size_t row_count = 0;
  size_t dim = 0;
  const float* const* gradients = nullptr;  // [outputs]: the gradient of each, [dim]
};

struct SumRun {
  GradientSums sums;
  float* const* out = nullptr;  // [row_count]: where each sum goes, [dim]
};

struct UpdateRun {
  RowHeader* const* rows = nullptr;  // [row_count]; null: is left out
  GradientSums sums;
  float scale = 1;
  float learning_rate = 0;
  uint32_t table_updates = 0;  // of the table so far, this one included; more than 0
  const SparseOptimizer* optimizer = nullptr;
  const BiasCorrections* corrections = nullptr;
  float* sum = nullptr;  // [dim], scratch
};

struct RowKernels {
  void (*pool)(const PoolRun& run) = nullptr;
  void (*update)(const UpdateRun& run) = nullptr;
  void (*sum)(const SumRun& run) = nullptr;
};

// The fastest implementation for this machine.
const RowKernels& RowKernelsForMachine();

const RowKernels& PortableRowKernels();

// Null if the machine can't run it or the compiler can't build it.
const RowKernels* Avx2RowKernels();
const RowKernels* Avx512RowKernels();

}  // namespace hps
