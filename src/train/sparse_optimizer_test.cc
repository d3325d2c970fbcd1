#include "train/sparse_optimizer.h"

#include <gtest/gtest.h>

#include <limits>

namespace hps {
namespace {

TEST(SparseOptimizer, StatesAreThoseOfTheFormulas) {
  EXPECT_EQ((SparseOptimizer{.kind = OptimizerKind::kSgd}).states_per_element(), 0U);
  EXPECT_EQ((SparseOptimizer{.kind = OptimizerKind::kAdagrad}).states_per_element(), 1U);
  EXPECT_EQ((SparseOptimizer{.kind = OptimizerKind::kAdam}).states_per_element(), 2U);
}

TEST(SparseOptimizer, RefusesConstantsOutOfRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(ValidateOptimizer({}).ok());
  EXPECT_FALSE(ValidateOptimizer({.epsilon = -1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.epsilon = infinity}).ok());
  EXPECT_FALSE(ValidateOptimizer({.initial_accumulator = -0.1F}).ok());
  EXPECT_FALSE(ValidateOptimizer({.beta1 = 1}).ok());
  EXPECT_FALSE(ValidateOptimizer({.beta2 = -0.1F}).ok());
}

}  // namespace
}  // namespace hps
