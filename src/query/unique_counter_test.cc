#include "query/unique_counter.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

namespace hps {
namespace {

TEST(UniqueCounterTest, AgreesWithASetAtEverySize) {
  constexpr size_t kKeysMax = 5000;
  UniqueCounter counter(kKeysMax);
  std::mt19937_64 random(5);
  for (size_t key_count : {0, 1, 2, 31, 32, 33, 4096, 5000, 3}) {
    std::vector<Key> keys(key_count);
    for (Key& key : keys) key = static_cast<Key>(random() % (key_count / 2 + 1)) - 3;
    if (key_count > 2) {
      keys[0] = std::numeric_limits<Key>::min();
      keys[1] = std::numeric_limits<Key>::max();
    }
    counter.Begin(key_count);
    const size_t half = key_count / 2;
    counter.Add(std::span(keys).first(half));
    counter.Add(std::span(keys).subspan(half));
    EXPECT_EQ(counter.count(), std::set<Key>(keys.begin(), keys.end()).size()) << key_count;
  }
}

TEST(UniqueCounterTest, AllKeysDifferentFillItNoMoreThanHalf) {
  UniqueCounter counter(1024);
  std::vector<Key> keys(1024);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i * 0x9e3779b97f4a7c15);
  counter.Begin(keys.size());
  counter.Add(keys);
  EXPECT_EQ(counter.count(), keys.size());
}

}  // namespace
}  // namespace hps
