#include "update/noted_keys.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hps {
namespace {

std::vector<Key> KeysFrom(Key first, size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

TEST(NotedKeysTest, KeepsKeysInTheirOrderUntilTheyAreRemoved) {
  NotedKeys noted;
  EXPECT_TRUE(noted.empty());
  EXPECT_FALSE(noted.Add(std::vector<Key>{3, 1}));
  EXPECT_FALSE(noted.Add(std::vector<Key>{2, 1}));
  EXPECT_EQ(noted.keys().size(), 4u);
  noted.RemoveFirst(3);
  ASSERT_EQ(noted.keys().size(), 1u);
  EXPECT_EQ(noted.keys()[0], 1);
  EXPECT_FALSE(noted.empty());
  noted.RemoveFirst(1);
  EXPECT_TRUE(noted.empty());
}

TEST(NotedKeysTest, KeysThatOccurTwiceCountOnce) {
  constexpr size_t kCount = NotedKeys::kKeysMax / 16 * 15;
  NotedKeys noted;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(noted.Add(KeysFrom(0, kCount)));
  EXPECT_EQ(noted.keys().size(), kCount);
  EXPECT_FALSE(noted.Add(std::vector<Key>{-1}));
  EXPECT_TRUE(noted.Add(KeysFrom(0, kCount))) << "it would stay nearly full";
}

TEST(NotedKeysTest, OneKeyTooManyGivesAllUp) {
  NotedKeys noted;
  EXPECT_FALSE(noted.Add(KeysFrom(0, NotedKeys::kKeysMax)));
  EXPECT_TRUE(noted.Add(std::vector<Key>{-1}));
  EXPECT_TRUE(noted.overflowed());
  EXPECT_TRUE(noted.keys().empty());
  EXPECT_FALSE(noted.empty());
  EXPECT_FALSE(noted.Add(std::vector<Key>{5})) << "it has overflowed before";
  EXPECT_TRUE(noted.keys().empty());
}

}  // namespace
}  // namespace hps
