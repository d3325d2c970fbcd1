// The part of EmbeddingShard's contract suite about rows whose elements have 16 bits. Included by
// embedding_shard_contract.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "testing/contracts/embedding_shard_contract_fixture.h"
#include "testing/reference_optimizer.h"
#include "train/row_rounding.h"

namespace hps {

// Widths that are not whole fours, one four, and more than a device's warp takes at a time.
struct PrecisionCase {
  Dtype dtype = Dtype::kFloat32;
  uint32_t dim = 0;
};
inline std::vector<PrecisionCase> PrecisionCases() {
  std::vector<PrecisionCase> cases;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const uint32_t dim : {3U, 4U, 130U}) cases.push_back({dtype, dim});
  }
  return cases;
}
inline ShardOptions WithDtype(ShardOptions options, Dtype dtype) {
  options.dtype = dtype;
  return options;
}

inline std::vector<float> Nearest(std::vector<float> row, Dtype dtype) {
  for (float& element : row) element = RoundedToNearest(element, dtype);
  return row;
}

// The row after update number `updates`: `row`, that update's float32 result, rounded at random.
inline std::vector<float> AtRandom(std::vector<float> row, const ShardOptions& options, Key key,
                                   uint32_t updates) {
  const uint64_t state = RoundingState(key, options.initializer.seed);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint64_t four = RoundingBits(state, updates, static_cast<uint32_t>(i / 4));
    const auto random = static_cast<uint32_t>(four >> (i % 4 * 16) & 0xffff);
    row[i] = RoundedAtRandom(row[i], options.dtype, random);
  }
  return row;
}

// Different in each element and step.
inline std::vector<float> SmoothGradients(size_t count, int step) {
  std::vector<float> gradients(count);
  for (size_t i = 0; i < count; ++i)
    gradients[i] = static_cast<float>(std::sin(static_cast<double>(i) + 3.0 * step));
  return gradients;
}

inline void ExpectEqualRows(EmbeddingShard& found, EmbeddingShard& expected) {
  const ShardRows a = *found.ReadRows(true);
  const ShardRows b = *expected.ReadRows(true);
  EXPECT_EQ(a.keys, b.keys);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.update_counts, b.update_counts);
}

TEST_P(EmbeddingShardContract, FirstValuesOf16BitsAreTheNearest) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    const auto shard = Make(WithDtype(Options(dim), dtype));
    const auto step = shard->NewStep();
    Floats exact;
    for (const Key key : OddKeys()) {
      const Floats row = Initial(*shard, key);
      exact.insert(exact.end(), row.begin(), row.end());
    }
    const Floats expected = Nearest(exact, dtype);
    EXPECT_NE(expected, exact);
    EXPECT_EQ(Forward(*shard, {.keys = OddKeys()}, step.get()), expected);
    EXPECT_EQ(Evaluate(*shard, OddKeys()), expected);
    EXPECT_EQ(shard->ReadRows(false)->values, expected);  // these keys ascend
  }
}

TEST_P(EmbeddingShardContract, RowsOf16BitsArePooledInFloat32) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    const auto shard = Make(WithDtype(Options(dim), dtype));
    const auto step = shard->NewStep();
    const Keys keys = {4, 5, 4};
    const std::vector<int64_t> offsets = {0, 3};
    const Floats weights = {0.3F, 2, -1};
    const Floats four = Nearest(Initial(*shard, 4), dtype);
    const Floats five = Nearest(Initial(*shard, 5), dtype);
    const Floats sum = Forward(*shard, {.keys = keys, .offsets = offsets}, step.get());
    const Floats mean =
        Forward(*shard, {.keys = keys, .offsets = offsets, .pooling = Pooling::kMean}, step.get());
    const Floats weighted =
        Forward(*shard, {.keys = keys, .offsets = offsets, .weights = weights}, step.get());
    for (size_t i = 0; i < dim; ++i) {
      EXPECT_EQ(sum[i], four[i] + five[i] + four[i]);
      EXPECT_EQ(mean[i], (four[i] + five[i] + four[i]) / 3);
      EXPECT_NEAR(weighted[i], four[i] * 0.3F + five[i] * 2 - four[i], 1e-6);
    }
  }
}

// Key 12 is in each third step only: a row's own updates count. Gradients are small whole numbers
// of 2^-12, so that their sums and products are exact, and the float32 result is that of one
// subtraction.
TEST_P(EmbeddingShardContract, UpdatesOf16BitsAreRoundedAtRandom) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    const ShardOptions options = WithDtype(Options(dim), dtype);
    const auto shard = Make(options);
    const auto step = shard->NewStep();
    Floats often = Nearest(Initial(*shard, -3), dtype);
    Floats seldom = Nearest(Initial(*shard, 12), dtype);
    int down = 0;
    int up = 0;
    const auto expect = [&, dtype = dtype, dim = dim](Floats& row, Key key, uint32_t updates,
                                                      float factor) {
      for (size_t i = 0; i < dim; ++i) row[i] -= factor * static_cast<float>(i % 7 + 1) * 0x1p-12F;
      const Floats exact = row;
      row = AtRandom(exact, options, key, updates);
      for (size_t i = 0; i < dim; ++i) {
        ++(row[i] < exact[i] ? down : up);
        EXPECT_TRUE(row[i] == RoundedAtRandom(exact[i], dtype, 0) ||
                    row[i] == RoundedAtRandom(exact[i], dtype, 0xffff));
      }
    };
    for (uint32_t s = 0; s < 12; ++s) {
      const Keys keys = s % 3 == 0 ? Keys{-3, 12, -3} : Keys{-3};
      Forward(*shard, {.keys = keys}, step.get());
      Floats gradients(keys.size() * dim);
      for (size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = static_cast<float>(i % dim % 7 + 1) * 0x1p-12F;
      ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 0.25F, .scale = 2}).ok());
      expect(often, -3, s + 1, s % 3 == 0 ? 1 : 0.5F);
      if (s % 3 == 0) expect(seldom, 12, s / 3 + 1, 0.5F);
      ASSERT_EQ(Evaluate(*shard, {-3}), often) << DtypeName(dtype) << " " << dim << " " << s;
      ASSERT_EQ(Evaluate(*shard, {12}), seldom) << DtypeName(dtype) << " " << dim << " " << s;
    }
    EXPECT_GT(down, 0);
    EXPECT_GT(up, 0);
  }
}

// Of these optimizers, whose states don't depend on the row's values.
TEST_P(EmbeddingShardContract, StatesOf16BitRowsAreFloat32) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    for (const OptimizerKind kind : {OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                     OptimizerKind::kAdam, OptimizerKind::kMomentum}) {
      ShardOptions options = Options(dim, kind);
      options.optimizer.initial_accumulator = 0.1F;
      options.optimizer.momentum = 0.9F;
      const auto exact = Make(options);
      const auto shard = Make(WithDtype(options, dtype));
      for (EmbeddingShard* const each : {exact.get(), shard.get()}) {
        const auto step = each->NewStep();
        for (int s = 0; s < 5; ++s) {
          Forward(*each, {.keys = Keys{8}}, step.get());
          ASSERT_TRUE(
              BackwardOne(*each, *step, SmoothGradients(dim, s), {.learning_rate = 0.1F}).ok());
        }
      }
      const Floats expected = exact->ReadRows(true)->values;
      const Floats found = shard->ReadRows(true)->values;
      const auto state_of = [row_dim = dim](const Floats& row) {
        return Floats(row.begin() + row_dim, row.end());
      };
      ASSERT_EQ(found.size(), dim + options.optimizer.state_count(dim));
      EXPECT_EQ(state_of(found), state_of(expected));
      EXPECT_NE(state_of(found), Nearest(state_of(found), dtype));
      EXPECT_EQ(Floats(found.begin(), found.begin() + dim), Evaluate(*shard, {8}));
    }
  }
}

TEST_P(EmbeddingShardContract, RowsThatAreWrittenAreRoundedToTheNearest) {
  const Floats written = {0x1.0102p0F, -1e30F, 3e-7F, 0x1.fffffep0F};
  for (const auto& [dtype, expected] :
       {std::pair{Dtype::kFloat16, Floats{0x1.01p0F, -65504, 0x1.4p-22F, 2}},
        std::pair{Dtype::kBfloat16, Floats{0x1.02p0F, -0x1.94p99F, 0x1.42p-22F, 2}}}) {
    for (const uint32_t dim : {3U, 4U, 130U}) {
      const auto shard = Make(WithDtype(Options(dim), dtype));
      Train(*shard, {2}, 1);
      Floats values(2 * size_t{dim});
      Floats rounded(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = written[i % 4];
        rounded[i] = expected[i % 4];
      }
      ASSERT_TRUE(shard->WriteRows({.keys = {1, 2}, .values = values}).ok());  // 1 is new
      EXPECT_EQ(Evaluate(*shard, {1, 2}), rounded);
      EXPECT_EQ(shard->ReadRows(false)->values, rounded);
      EXPECT_EQ(shard->CollectDelta(DeltaReader::kPublication)->changed.values, rounded);
      Train(*shard, {1, 2}, 0);  // the values are the type's: nothing is left to round
      EXPECT_EQ(Evaluate(*shard, {1, 2}), rounded);
    }
  }
}

// A checkpoint of float32 tables may be read into others. Back, nothing is lost.
TEST_P(EmbeddingShardContract, RowsGoFromFloat32To16BitsAndBack) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    const ShardOptions options = Options(dim, OptimizerKind::kAdam);
    const auto exact = Make(options);
    for (int s = 0; s < 3; ++s) Train(*exact, {-7, 5}, 0.3F, 0.1F);
    const ShardRows rows = *exact->ReadRows(true);
    const auto shard = Make(WithDtype(options, dtype));
    ASSERT_TRUE(shard->WriteRows(rows).ok());
    const ShardRows rounded = *shard->ReadRows(true);
    EXPECT_EQ(rounded.update_counts, rows.update_counts);
    ASSERT_EQ(rounded.values.size(), rows.values.size());
    const size_t width = rows.values.size() / 2;
    Floats expected = rows.values;
    for (const size_t first : {size_t{0}, width}) {
      for (size_t i = first; i < first + dim; ++i)
        expected[i] = RoundedToNearest(expected[i], dtype);
    }
    EXPECT_EQ(rounded.values, expected);
    EXPECT_NE(rounded.values, rows.values);
    const auto back = Make(options);
    ASSERT_TRUE(back->WriteRows(rounded).ok());
    ExpectEqualRows(*back, *shard);
  }
}

TEST_P(EmbeddingShardContract, RowsOf16BitsContinueElsewhereBitForBit) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    for (const SparseOptimizer& optimizer : EveryOptimizer()) {
      ShardOptions options = WithDtype(Options(dim), dtype);
      options.optimizer = optimizer;
      const auto shard = Make(options);
      const auto train = [dim = dim](EmbeddingShard& each, const Keys& keys, int s) {
        const auto step = each.NewStep();
        Forward(each, {.keys = keys}, step.get());
        const Floats gradients = SmoothGradients(keys.size() * dim, s);
        ASSERT_TRUE(BackwardOne(each, *step, gradients, {.learning_rate = 0.05F}).ok());
      };
      train(*shard, {-5, 3}, 0);
      for (int s = 1; s < 4; ++s) train(*shard, {3, 77}, s);
      const auto other = Make(options);
      train(*other, {100, 77, 3}, 0);  // its rows are elsewhere, and of another past
      ASSERT_TRUE(other->EraseRows(Keys{100}).ok());
      ASSERT_TRUE(other->WriteRows(*shard->ReadRows(true)).ok());
      ExpectEqualRows(*other, *shard);
      for (int s = 4; s < 8; ++s) {
        train(*shard, {-5, 3, 8}, s);
        train(*other, {-5, 3, 8}, s);
      }
      ExpectEqualRows(*other, *shard);
    }
  }
}

TEST_P(EmbeddingShardContract, EqualUpdatesOf16BitsGiveEqualBits) {
  for (const auto& [dtype, dim] : PrecisionCases()) {
    const auto shard = Make(WithDtype(Options(dim, OptimizerKind::kAdagrad), dtype));
    const auto results = [&, dim = dim] {
      const auto step = shard->NewStep();
      for (int s = 0; s < 10; ++s) {
        Keys keys(100);
        for (size_t i = 0; i < keys.size(); ++i)
          keys[i] = static_cast<Key>((i * i + static_cast<size_t>(s)) % 37);
        Forward(*shard, {.keys = keys}, step.get());
        const Floats gradients = SmoothGradients(keys.size() * dim, s);
        EXPECT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 0.05F}).ok());
      }
      return *shard->ReadRows(true);
    };
    const ShardRows first = results();
    ASSERT_TRUE(shard->EraseRows(first.keys).ok());
    Train(*shard, {1000}, 1);  // takes the place of one of the rows
    ASSERT_TRUE(shard->EraseRows(Keys{1000}).ok());
    const ShardRows second = results();
    EXPECT_EQ(second.keys, first.keys);
    EXPECT_EQ(second.values, first.values);
    EXPECT_EQ(second.update_counts, first.update_counts);
  }
}

TEST_P(EmbeddingShardContract, ElementsOf16BitsDoNotBecomeInfinite) {
  for (const auto& [dtype, largest] :
       {std::pair{Dtype::kFloat16, 65504.0F}, std::pair{Dtype::kBfloat16, 0x1.fep127F}}) {
    const auto shard = Make(WithDtype(Options(5), dtype));
    const Floats row = {largest, -largest, largest, -largest, 1};
    ASSERT_TRUE(shard->WriteRows({.keys = {1}, .values = row}).ok());
    const auto step = shard->NewStep();
    for (int s = 0; s < 20; ++s) {
      Forward(*shard, {.keys = Keys{1}}, step.get());
      // By the learning rate: gradients may not be so large. Float32 has the result.
      const Floats gradients = {-1, 1, -1, 1, 0};
      ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = largest * 0x1p-9F}).ok());
      ASSERT_EQ(Evaluate(*shard, {1}), row);
    }
    EXPECT_EQ(shard->ReadRows(true)->update_counts, (std::vector<uint32_t>{20}));
  }
}

TEST_P(EmbeddingShardContract, RefusesTypesThatThereAreNot) {
  for (const int number : {0, 4, 255}) {
    EXPECT_EQ(GetParam().make(WithDtype(Options(4), static_cast<Dtype>(number))).status().code(),
              absl::StatusCode::kInvalidArgument)
        << number;
  }
}

}  // namespace hps
