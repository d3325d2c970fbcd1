#include "train_cpu/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "testing/reference_optimizer.h"
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
std::vector<float> Updated(const RowKernels& kernels, const SparseOptimizer& optimizer, size_t dim,
                           bool with_scales) {
  const BiasCorrections corrections(optimizer);
  const size_t width = dim + optimizer.state_count(dim);
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
                  .table_updates = 3,
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

// A row of zeros and a state of zeros after one update at the rate 1.
std::vector<float> RowOfZerosUpdated(const RowKernels& kernels, const SparseOptimizer& optimizer,
                                     const std::vector<float>& gradient) {
  const size_t width = gradient.size() + optimizer.state_count(gradient.size());
  const BiasCorrections corrections(optimizer);
  RowArena arena(width);
  RowHeader* const row = arena.at(arena.Take());
  std::fill_n(ValuesOf(row), width, 0.0F);
  const uint32_t begins[] = {0, 1};
  const uint32_t gradient_rows[] = {0};
  const float* const output = gradient.data();
  kernels.update({.rows = &row,
                  .sums = {.begins = begins,
                           .gradient_rows = gradient_rows,
                           .row_count = 1,
                           .dim = gradient.size(),
                           .gradients = &output},
                  .learning_rate = 1,
                  .table_updates = 1,
                  .optimizer = &optimizer,
                  .corrections = &corrections});
  return {ValuesOf(row), ValuesOf(row) + width};
}

// So that zeros of both signs differ.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(RowKernels, AllImplementationsGiveTheSameBits) {
  std::vector<size_t> dims = {128, 300};
  for (size_t dim = 1; dim <= 33; ++dim) dims.push_back(dim);
  for (const size_t dim : dims) {
    for (const RowKernels* kernels : AllKernels()) {
      for (const bool flag : {false, true}) {
        for (const bool weighted : {false, true}) {
          EXPECT_EQ(Bits(Pooled(*kernels, dim, flag, weighted)),
                    Bits(Pooled(PortableRowKernels(), dim, flag, weighted)))
              << dim;
        }
        for (const SparseOptimizer& optimizer : EveryOptimizer()) {
          EXPECT_EQ(Bits(Updated(*kernels, optimizer, dim, flag)),
                    Bits(Updated(PortableRowKernels(), optimizer, dim, flag)))
              << dim << ", optimizer " << static_cast<int>(optimizer.kind);
        }
      }
    }
  }
}

// Its order must not change: a checkpoint would go on with other bits.
TEST(RowKernels, SumSquaresInTheirFixedOrder) {
  for (const size_t dim : {3, 16, 37, 128}) {
    const std::vector<float> gradient = RandomFloats(dim, 7);
    std::vector<float> sums(16);
    for (size_t i = 0; i < dim; ++i) sums[i % 16] += gradient[i] * gradient[i];
    for (const size_t half : {8, 4, 2, 1}) {
      for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    for (const RowKernels* kernels : AllKernels()) {
      const std::vector<float> values =
          RowOfZerosUpdated(*kernels, {.kind = OptimizerKind::kRowwiseAdagrad}, gradient);
      EXPECT_EQ(values[dim], sums[0] / static_cast<float>(dim)) << dim;
    }
  }
}

TEST(RowKernels, FtrlZerosWhatIsWithinItsThreshold) {
  // z after the update is the gradient.
  const std::vector<float> gradient = {0, -0.0F, 1, -1, 0.5F, 3, -3};
  const std::vector<float> expected = {0, 0, 0, 0, 0, -0.5F, 0.5F};  // sqrt(n) is 3, beta is 1
  for (const RowKernels* kernels : AllKernels()) {
    std::vector<float> values =
        RowOfZerosUpdated(*kernels, {.kind = OptimizerKind::kFtrl, .l1 = 1, .beta = 1}, gradient);
    values.resize(gradient.size());
    EXPECT_EQ(values, expected);
  }
}

TEST(BiasCorrections, AreExactForEveryStep) {
  const BiasCorrections corrections({.kind = OptimizerKind::kAdam});
  for (const uint32_t t : {1U, 2U, 4095U, 4096U, 1'000'000U}) {
    const double beta2 = double{0.999F};
    EXPECT_FLOAT_EQ(corrections.At(t).second, static_cast<float>(1 / (1 - std::pow(beta2, t))));
  }
}

TEST(BiasCorrections, OfSparseAdamAreInTheRate) {
  const BiasCorrections corrections({.kind = OptimizerKind::kSparseAdam});
  for (const uint32_t t : {1U, 7U, 1'000'000U}) {
    const double second = 1 - std::pow(double{0.999F}, t);
    EXPECT_FLOAT_EQ(corrections.At(t).first,
                    static_cast<float>(std::sqrt(second) / (1 - std::pow(double{0.9F}, t))));
    EXPECT_EQ(corrections.At(t).second, 1);
  }
}

}  // namespace
}  // namespace hps
