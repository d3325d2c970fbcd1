#include "base/hash.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <limits>
#include <random>

namespace hps {
namespace {

TEST(HashTest, IsXxh64OfTheKeysBytes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const Key key = static_cast<Key>(random());
    for (uint64_t seed : {kStreamHashSeed, kL1HashSeed, kL2HashSeed})
      ASSERT_EQ(HashKey(key, seed), XXH64(&key, sizeof(key), seed)) << key;
  }
  for (Key key :
       {Key{0}, Key{-1}, std::numeric_limits<Key>::min(), std::numeric_limits<Key>::max()})
    EXPECT_EQ(HashKey(key, 0), XXH64(&key, sizeof(key), 0));
}

TEST(HashTest, RangeHoldsItsBounds) {
  EXPECT_EQ(HashToRange(0, 7), 0u);
  EXPECT_EQ(HashToRange(~uint64_t{0}, 7), 6u);
  EXPECT_EQ(HashToRange(~uint64_t{0}, 1), 0u);
}

}  // namespace
}  // namespace hps
