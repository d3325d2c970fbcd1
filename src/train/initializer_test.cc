#include "train/initializer.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace hps {
namespace {

std::vector<float> RowOf(const Initializer& initializer, Key key, size_t dim) {
  std::vector<float> row(dim);
  InitializeRow(initializer, key, row);
  return row;
}

TEST(Initializer, DependsOnKeyAndSeedOnly) {
  const Initializer first{.low = -1, .high = 1, .seed = 1};
  const Initializer second{.low = -1, .high = 1, .seed = 2};
  EXPECT_EQ(RowOf(first, -1, 33), RowOf(first, -1, 33));
  EXPECT_NE(RowOf(first, -1, 33), RowOf(first, 0, 33));
  EXPECT_NE(RowOf(first, -1, 33), RowOf(second, -1, 33));
}

TEST(Initializer, IsUniformInItsRange) {
  const Initializer initializer{.low = -2, .high = 1, .seed = 3};
  double sum = 0;
  double squares = 0;
  constexpr size_t kRows = 1000;
  constexpr size_t kDim = 31;
  for (size_t key = 0; key < kRows; ++key) {
    for (const float value : RowOf(initializer, static_cast<Key>(key), kDim)) {
      ASSERT_GE(value, -2);
      ASSERT_LT(value, 1);
      sum += value;
      squares += double{value} * value;
    }
  }
  const double count = kRows * kDim;
  EXPECT_NEAR(sum / count, -0.5, 0.02);
  EXPECT_NEAR(squares / count - 0.25, 0.75, 0.02);  // variance: width^2 / 12
}

TEST(Initializer, ARangeOfOneValueIsAConstant) {
  EXPECT_EQ(RowOf({.low = 0.5F, .high = 0.5F}, 7, 3), std::vector<float>(3, 0.5F));
}

TEST(Initializer, RefusesWhatIsNoRange) {
  EXPECT_FALSE(ValidateInitializer({.low = 1, .high = 0}).ok());
  EXPECT_FALSE(
      ValidateInitializer({.low = 0, .high = std::numeric_limits<float>::infinity()}).ok());
  EXPECT_TRUE(ValidateInitializer({.low = 0, .high = 0}).ok());
}

}  // namespace
}  // namespace hps
