#include "train_cpu/key_index.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>

#include "testing/trials.h"

namespace hps {
namespace {

TEST(KeyIndex, BehavesAsAMap) {
  std::mt19937_64 random(TestSeed());
  KeyIndex index;
  std::map<Key, uint32_t> map;
  for (uint64_t i = 0; i < Trials(200'000); ++i) {
    // Keys of few values, so that they are erased and come back; some at the ends of the range.
    Key key = static_cast<Key>(random() % 3000) - 1500;
    if (random() % 8 == 0) key = std::numeric_limits<Key>::min() + (key & 3);
    const uint64_t hash = KeyIndex::Hash(key);
    const auto found = map.find(key);
    ASSERT_EQ(index.Find(key, hash), found == map.end() ? kNoRow : found->second);
    if (found == map.end()) {
      const auto slot = static_cast<uint32_t>(random() % kNoRow);
      index.Reserve();
      index.Insert(key, hash, slot);
      map[key] = slot;
    } else if (random() % 2 == 0) {
      index.Erase(key, hash);
      map.erase(found);
    }
    ASSERT_EQ(index.size(), map.size());
  }
  for (const auto& [key, slot] : map) ASSERT_EQ(index.Find(key, KeyIndex::Hash(key)), slot);
}

}  // namespace
}  // namespace hps
