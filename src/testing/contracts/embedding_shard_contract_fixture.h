// What the tests of EmbeddingShard's contract suite, embedding_shard_contract.h, share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "train/embedding_shard.h"

namespace hps {

struct EmbeddingShardFactory {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<EmbeddingShard>>(const ShardOptions&)> make;
  // Why the machine can't run it; empty: it can.
  std::function<std::string()> why_not = [] { return std::string(); };
};

inline std::string EmbeddingShardName(const ::testing::TestParamInfo<EmbeddingShardFactory>& info) {
  return info.param.name;
}

// A step with one feature, whose output and gradients, [output rows, dim], are in one piece.
inline absl::Status ForwardOne(EmbeddingShard& shard, const BagBatch& batch, StepIndex* step,
                               std::span<float> out) {
  const size_t dim = shard.options().dim;
  const OutputPiece piece{out.size() / dim, out.data(), dim};
  return shard.Forward({&batch, 1}, step, {&piece, 1});
}
inline absl::Status BackwardOne(EmbeddingShard& shard, StepIndex& step,
                                std::span<const float> gradients, const UpdateFactors& factors) {
  const size_t dim = shard.options().dim;
  const GradientPiece piece{gradients.size() / dim, gradients.data(), dim};
  return shard.Backward(step, {&piece, 1}, factors);
}

class EmbeddingShardContract : public ::testing::TestWithParam<EmbeddingShardFactory> {
 protected:
  using Floats = std::vector<float>;
  using Keys = std::vector<Key>;

  void SetUp() override {
    const std::string why = GetParam().why_not();
    if (!why.empty()) GTEST_SKIP() << why;
  }

  static ShardOptions Options(uint32_t dim, OptimizerKind kind = OptimizerKind::kSgd) {
    return {.name = "m/t",
            .dim = dim,
            .optimizer = {.kind = kind},
            .initializer = {.low = -1, .high = 1, .seed = 5}};
  }

  static std::unique_ptr<EmbeddingShard> Make(const ShardOptions& options) {
    auto shard = GetParam().make(options);
    EXPECT_TRUE(shard.ok()) << shard.status();
    return shard.ok() ? *std::move(shard) : nullptr;
  }

  static Floats Initial(const EmbeddingShard& shard, Key key) {
    Floats row(shard.options().dim);
    InitializeRow(shard.options().initializer, key, row);
    return row;
  }

  static Floats Forward(EmbeddingShard& shard, const BagBatch& batch, StepIndex* step) {
    Floats out(batch.output_rows() * shard.options().dim, -77);
    const absl::Status status = ForwardOne(shard, batch, step, out);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }
  static Floats Evaluate(EmbeddingShard& shard, const Keys& keys) {
    return Forward(shard, {.keys = keys}, nullptr);
  }

  // One training step over `keys`, each a bag, with the same gradient for every element.
  static void Train(EmbeddingShard& shard, const Keys& keys, float gradient, float rate = 1) {
    const auto step = shard.NewStep();
    Forward(shard, {.keys = keys}, step.get());
    const Floats gradients(keys.size() * shard.options().dim, gradient);
    const absl::Status status = BackwardOne(shard, *step, gradients, {.learning_rate = rate});
    EXPECT_TRUE(status.ok()) << status;
  }

  static Floats Plus(Floats row, float value) {
    for (float& element : row) element += value;
    return row;
  }
  static const Keys& OddKeys() {
    static const Keys keys = {std::numeric_limits<Key>::min(), -1, 0, 1,
                              std::numeric_limits<Key>::max()};
    return keys;
  }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmbeddingShardContract);

}  // namespace hps
