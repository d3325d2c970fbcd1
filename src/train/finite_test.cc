#include "train/finite.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <vector>

namespace hps {
namespace {

TEST(AllFinite, FindsOneSpecialValueAnywhere) {
  using Limits = std::numeric_limits<float>;
  for (const size_t size : {size_t{1}, size_t{31}, size_t{63}, size_t{64}, size_t{65}}) {
    std::vector<float> values(size, Limits::max());
    values[0] = -0.0F;
    EXPECT_TRUE(AllFinite(values));
    for (const float special : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      for (size_t i = 0; i < size; ++i) {
        std::vector<float> with_special = values;
        with_special[i] = special;
        EXPECT_FALSE(AllFinite(with_special)) << i << " of " << size;
      }
    }
  }
  EXPECT_TRUE(AllFinite({}));
}

}  // namespace
}  // namespace hps
