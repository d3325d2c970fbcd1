#include "train_cpu/row_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "train_cpu/row_arena.h"

namespace hps {
namespace {

constexpr size_t kRows = 40;

std::vector<const RowKernels*> AllKernels() {
  std::vector<const RowKernels*> kernels = {&PortableRowKernels()};
  for (const RowKernels* each : {Avx2RowKernels(), Avx512RowKernels()}) {
    if (each != nullptr) kernels.push_back(each);
  }
  return kernels;
}

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The sums of gradients, and the values of all rows after an update that has duplicates, scales and
// a row that is left out.
std::vector<float> Updated(const RowKernels& kernels, OptimizerKind kind, size_t dim,
                           bool with_scales) {
  const SparseOptimizer optimizer{.kind = kind, .initial_accumulator = 0.5F};
  const BiasCorrections corrections(optimizer);
  const size_t width = dim * (1 + optimizer.states_per_element());
  RowArena arena(width);
  std::vector<RowHeader*> rows;
  std::vector<uint32_t> begins = {0};
  std::vector<uint32_t> gradient_rows;
  for (size_t i = 0; i < kRows; ++i) {
    rows.push_back(arena.at(arena.Take()));
    rows[i]->updates = static_cast<uint32_t>(i * i * 7);
    const std::vector<float> values = RandomFloats(width, static_cast<uint32_t>(i));
    for (size_t j = 0; j < width; ++j) ValuesOf(rows[i])[j] = std::abs(values[j]);
    for (size_t j = 0; j <= i % 3; ++j)
      gradient_rows.push_back(static_cast<uint32_t>((i + 5 * j) % kRows));
    begins.push_back(static_cast<uint32_t>(gradient_rows.size()));
  }
  const std::vector<RowHeader*> all = rows;
  rows[4] = nullptr;
  const std::vector<float> gradients = RandomFloats(kRows * dim, 99);
  const std::vector<float> scales = RandomFloats(gradient_rows.size(), 98);
  std::vector<float> sum(dim);
  std::vector<const float*> outputs;
  for (size_t i = 0; i < kRows; ++i) outputs.push_back(gradients.data() + i * dim);
  const GradientSums sums{.begins = begins.data(),
                          .gradient_rows = gradient_rows.data(),
                          .gradient_scales = with_scales ? scales.data() : nullptr,
                          .row_count = kRows,
                          .dim = dim,
                          .gradients = outputs.data()};
  kernels.update({.rows = rows.data(),
                  .sums = sums,
                  .scale = 0.25F,
                  .learning_rate = 0.1F,
                  .optimizer = &optimizer,
                  .corrections = &corrections,
                  .sum = sum.data()});
  std::vector<float> result(kRows * dim);
  std::vector<float*> sum_rows;
  for (size_t i = 0; i < kRows; ++i) sum_rows.push_back(result.data() + i * dim);
  kernels.sum({.sums = sums, .out = sum_rows.data()});
  for (RowHeader* row : all) result.insert(result.end(), ValuesOf(row), ValuesOf(row) + width);
  return result;
}

std::vector<float> Pooled(const RowKernels& kernels, size_t dim, bool is_mean, bool weighted) {
  const std::vector<float> values = RandomFloats(kRows * dim, 1);
  const std::vector<float> weights = RandomFloats(kRows, 2);
  const std::vector<int64_t> offsets = {100, 101, 101, 104, 120, 100 + kRows};
  std::vector<const float*> rows;
  for (size_t i = 0; i < kRows; ++i) rows.push_back(values.data() + (i * 17 % kRows) * dim);
  std::vector<float> out((offsets.size() - 1) * (dim + 1));
  kernels.pool({.rows = rows.data(),
                .offsets = offsets.data(),
                .offset_base = 100,
                .weights = weighted ? weights.data() : nullptr,
                .is_mean = is_mean,
                .bag_count = offsets.size() - 1,
                .dim = dim,
                .out = out.data(),
                .out_stride = dim + 1});
  return out;
}

TEST(RowKernels, AllImplementationsGiveTheSameBits) {
  for (const size_t dim : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 300}) {
    for (const RowKernels* kernels : AllKernels()) {
      for (const bool flag : {false, true}) {
        for (const bool weighted : {false, true}) {
          EXPECT_EQ(Pooled(*kernels, dim, flag, weighted),
                    Pooled(PortableRowKernels(), dim, flag, weighted))
              << dim;
        }
        for (const OptimizerKind kind :
             {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam}) {
          EXPECT_EQ(Updated(*kernels, kind, dim, flag),
                    Updated(PortableRowKernels(), kind, dim, flag))
              << dim;
        }
      }
    }
  }
}

TEST(BiasCorrections, AreExactForEveryStep) {
  const BiasCorrections corrections({.kind = OptimizerKind::kAdam});
  for (const uint32_t t : {1U, 2U, 4095U, 4096U, 1'000'000U}) {
    const double beta2 = double{0.999F};
    EXPECT_FLOAT_EQ(corrections.At(t).second, static_cast<float>(1 / (1 - std::pow(beta2, t))));
  }
}

}  // namespace
}  // namespace hps
