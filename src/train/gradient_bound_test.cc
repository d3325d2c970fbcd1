#include "train/gradient_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace hps {
namespace {

using Limits = std::numeric_limits<float>;

TEST(AllWithin, FindsOneValueAnywhere) {
  EXPECT_TRUE(AllWithin({}, 0));
  for (const size_t size : {size_t{1}, size_t{31}, size_t{63}, size_t{64}, size_t{65}}) {
    std::vector<float> values(size, 0.5F);
    values[0] = -0.0F;
    EXPECT_TRUE(AllWithin(values, 0.5F));
    for (const float special :
         {-0.75F, 1e30F, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      for (size_t i = 0; i < size; ++i) {
        std::vector<float> with_special = values;
        with_special[i] = special;
        EXPECT_FALSE(AllWithin(with_special, 0.5F)) << i << " of " << size;
        EXPECT_EQ(AllWithin(with_special, Limits::max()), std::isfinite(special));
      }
    }
    EXPECT_FALSE(AllWithin(values, -1));
  }
}

TEST(GradientFactor, CountsKeysOrAddsWeights) {
  const std::vector<Key> keys = {1, 1, 2};
  const std::vector<int64_t> offsets = {0, 3};
  EXPECT_EQ(GradientFactor({}), 0);
  EXPECT_EQ(GradientFactor({.keys = keys, .offsets = offsets}), 3);
  const std::vector<float> weights = {2, -0.5F, 1};
  EXPECT_EQ(GradientFactor({.keys = keys, .offsets = offsets, .weights = weights}), 3.5);
}

TEST(GradientLimit, KeepsSumsAndTheirSquaresFinite) {
  EXPECT_EQ(GradientLimit(1, 1), 0x1p47F);
  EXPECT_EQ(GradientLimit(4, 1), 0x1p45F);
  EXPECT_EQ(GradientLimit(4, -0x1p-16F), 0x1p61F);
  EXPECT_EQ(GradientLimit(4, 0), Limits::max() / 4);
  EXPECT_EQ(GradientLimit(0.5, 0), Limits::max());
  EXPECT_EQ(GradientLimit(0, 1), Limits::max());
  EXPECT_LT(GradientLimit(std::nan(""), 1), 0);
  EXPECT_LT(GradientLimit(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_LT(GradientLimit(1, Limits::infinity()), 0);
  EXPECT_LT(GradientLimit(1, Limits::quiet_NaN()), 0);
}

}  // namespace
}  // namespace hps
