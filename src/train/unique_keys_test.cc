#include "train/unique_keys.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace hps {
namespace {

TEST(UniqueKeys, AreInTheOrderOfTheirFirstOccurrence) {
  const Key least = std::numeric_limits<Key>::min();
  const UniqueKeys unique = FindUniqueKeys(std::vector<Key>{7, -1, 7, least, -1, 0});
  EXPECT_EQ(unique.keys, (std::vector<Key>{7, -1, least, 0}));
  EXPECT_EQ(unique.places, (std::vector<int64_t>{0, 1, 0, 2, 1, 3}));
  EXPECT_TRUE(FindUniqueKeys({}).keys.empty());
}

TEST(UniqueKeys, PlacesLeadBackToTheKeys) {
  std::mt19937_64 random(1);
  std::vector<Key> keys(10'000);
  for (Key& key : keys) key = static_cast<Key>(random() % 3000);
  const UniqueKeys unique = FindUniqueKeys(keys);
  for (size_t i = 0; i < keys.size(); ++i)
    ASSERT_EQ(unique.keys[static_cast<size_t>(unique.places[i])], keys[i]);
}

TEST(OwnerOfKey, SpreadsKeysOverRanks) {
  std::vector<int> counts(3);
  for (Key key = 0; key < 3000; ++key) ++counts[OwnerOfKey(key, 3)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(OwnerOfKey(-1, 1), 0U);
}

}  // namespace
}  // namespace hps
