#include "train/sparse_optimizer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <vector>

namespace hps {
namespace {

std::vector<float> NewState(const SparseOptimizer& optimizer, size_t dim) {
  std::vector<float> state(optimizer.state_count(dim), -1);
  InitializeState(optimizer, dim, state);
  return state;
}

TEST(SparseOptimizer, StatesAreThoseOfTheFormulas) {
  using Floats = std::vector<float>;
  const auto state = [](OptimizerKind kind) {
    return NewState({.kind = kind, .initial_accumulator = 0.5F}, 3);
  };
  EXPECT_EQ(state(OptimizerKind::kSgd), Floats());
  EXPECT_EQ(state(OptimizerKind::kMomentum), Floats(3, 0));
  EXPECT_EQ(state(OptimizerKind::kNesterov), Floats(3, 0));
  EXPECT_EQ(state(OptimizerKind::kAdagrad), Floats(3, 0.5F));
  EXPECT_EQ(state(OptimizerKind::kRowwiseAdagrad), Floats(1, 0.5F));
  EXPECT_EQ(state(OptimizerKind::kAdam), Floats(6, 0));
  EXPECT_EQ(state(OptimizerKind::kSparseAdam), Floats(6, 0));
  EXPECT_EQ(state(OptimizerKind::kFtrl), (Floats{0.5F, 0.5F, 0.5F, 0, 0, 0}));
}

TEST(SparseOptimizer, RefusesConstantsOutOfRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(ValidateOptimizer({}).ok());
  EXPECT_FALSE(ValidateOptimizer({.epsilon = -1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.epsilon = infinity}).ok());
  EXPECT_FALSE(ValidateOptimizer({.initial_accumulator = -0.1F}).ok());
  EXPECT_FALSE(ValidateOptimizer({.beta1 = 1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.beta2 = -0.1F}).ok());
  EXPECT_TRUE(ValidateOptimizer({.momentum = 0.9F}).ok());
  EXPECT_FALSE(ValidateOptimizer({.momentum = 1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.momentum = nan}).ok());
  EXPECT_FALSE(ValidateOptimizer({.l1 = -1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.l2 = nan}).ok());
  EXPECT_FALSE(ValidateOptimizer({.beta = infinity}).ok());
  EXPECT_TRUE(ValidateOptimizer({.weight_decay = 0.1F}).ok());
  EXPECT_FALSE(ValidateOptimizer({.weight_decay = -0.1F}).ok());
}

TEST(SparseOptimizer, RefusesAnFtrlThatDividesByZeroOrHasWeightDecay) {
  const OptimizerKind ftrl = OptimizerKind::kFtrl;
  EXPECT_FALSE(ValidateOptimizer({.kind = ftrl}).ok());
  EXPECT_TRUE(ValidateOptimizer({.kind = ftrl, .initial_accumulator = 0.1F}).ok());
  EXPECT_TRUE(ValidateOptimizer({.kind = ftrl, .l2 = 0.1F}).ok());
  EXPECT_TRUE(ValidateOptimizer({.kind = ftrl, .beta = 1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.kind = ftrl, .beta = 1, .weight_decay = 0.1F}).ok());
}

}  // namespace
}  // namespace hps
