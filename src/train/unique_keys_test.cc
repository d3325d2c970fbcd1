#include "train/unique_keys.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace hps {
namespace {

TEST(UniqueKeys, AreInTheOrderOfTheirFirstOccurrence) {
  const Key least = std::numeric_limits<Key>::min();
  UniqueKeys unique;
  unique.Begin(6);
  unique.Add(std::vector<Key>{7, -1, 7});
  unique.Add(std::vector<Key>{least, -1, 0});
  const auto [keys, places] = std::pair(unique.keys(), unique.places());
  EXPECT_EQ(std::vector(keys.begin(), keys.end()), (std::vector<Key>{7, -1, least, 0}));
  EXPECT_EQ(std::vector(places.begin(), places.end()), (std::vector<uint32_t>{0, 1, 0, 2, 1, 3}));
  unique.Begin(0);
  EXPECT_TRUE(unique.keys().empty());
}

TEST(UniqueKeys, PlacesLeadBackToTheKeys) {
  std::mt19937_64 random(1);
  std::vector<Key> keys(10'000);
  for (Key& key : keys) key = static_cast<Key>(random() % 3000);
  UniqueKeys unique;
  unique.Begin(keys.size());
  unique.Add(keys);
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(unique.keys()[unique.places()[i]], keys[i]);
}

TEST(OwnerOfKey, SpreadsKeysOverRanks) {
  std::vector<int> counts(3);
  for (Key key = 0; key < 3000; ++key) ++counts[OwnerOfKey(key, 3)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(OwnerOfKey(-1, 1), 0U);
}

}  // namespace
}  // namespace hps
