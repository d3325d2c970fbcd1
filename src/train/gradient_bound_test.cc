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

TEST(LargestMagnitude, FindsOneValueAnywhere) {
  EXPECT_EQ(LargestMagnitude({}), 0);
  for (const size_t size : {size_t{1}, size_t{31}, size_t{63}, size_t{64}, size_t{65}}) {
    std::vector<float> values(size, 0.5F);
    values[0] = -0.0F;
    EXPECT_EQ(LargestMagnitude(values), size == 1 ? 0 : 0.5F);
    for (size_t i = 0; i < size; ++i) {
      std::vector<float> with_one = values;
      with_one[i] = -3;
      EXPECT_EQ(LargestMagnitude(with_one), 3) << i << " of " << size;
      for (const float special : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
        with_one[i] = special;
        EXPECT_EQ(LargestMagnitude(with_one), Limits::infinity()) << i << " of " << size;
      }
    }
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

TEST(CanUpdate, RefusesSumsThatOverflowAloneOrSquared) {
  EXPECT_TRUE(CanUpdate(0, 1));
  EXPECT_TRUE(CanUpdate(0x1p47, 1));
  EXPECT_FALSE(CanUpdate(0x1p48, 1));
  EXPECT_TRUE(CanUpdate(0x1p63, 0x1p-16F));
  EXPECT_FALSE(CanUpdate(1, -0x1p48F));
  EXPECT_FALSE(CanUpdate(2 * double{Limits::max()}, 0x1p-120F));
  EXPECT_FALSE(CanUpdate(std::nan(""), 1));
  EXPECT_FALSE(CanUpdate(1, Limits::quiet_NaN()));
  EXPECT_FALSE(CanUpdate(0, Limits::infinity()));
}

}  // namespace
}  // namespace hps
