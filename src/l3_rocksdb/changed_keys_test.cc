#include "l3_rocksdb/changed_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <thread>
#include <vector>

namespace hps {
namespace {

std::vector<Key> KeysFrom(Key first, size_t count) {
  std::vector<Key> keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(first + static_cast<Key>(i));
  return keys;
}

size_t ContainedCount(const ChangedKeys& filter, const std::vector<Key>& keys) {
  size_t count = 0;
  for (const Key key : keys) count += filter.MayContain(key) ? 1 : 0;
  return count;
}

TEST(ChangedKeysTest, AnEmptyOneContainsNothing) {
  ChangedKeys filter;
  EXPECT_TRUE(filter.empty());
  EXPECT_EQ(ContainedCount(filter, KeysFrom(-100, 200)), 0u);
  filter.Add({});
  EXPECT_TRUE(filter.empty());
}

// Of several segments.
TEST(ChangedKeysTest, ContainsWhatWasAddedAndLittleElse) {
  ChangedKeys filter;
  for (const size_t count : {size_t{1}, size_t{31}, size_t{33}, size_t{1000},
                             size_t{kChangedKeysFirstSegment}, size_t{300'000}}) {
    const std::vector<Key> keys = KeysFrom(-7, count);
    filter.Add(keys);
    EXPECT_FALSE(filter.empty());
    EXPECT_FALSE(filter.has_all());
    EXPECT_EQ(ContainedCount(filter, keys), count);
  }
  const std::vector<Key> others = KeysFrom(Key{1} << 40, 100'000);
  EXPECT_LT(ContainedCount(filter, others), others.size() / 200);
}

TEST(ChangedKeysTest, ManyKeysAtATimeGetTheAnswersOfEach) {
  ChangedKeys filter;
  std::array<bool, kChangedKeysAtOnce> contained{};
  for (const size_t added : {size_t{0}, size_t{100'000}}) {  // in two segments
    filter.Add(KeysFrom(0, added));
    const std::vector<Key> keys = KeysFrom(static_cast<Key>(added) - 2'000, 4'000);
    for (size_t begin = 0, count = 0; begin < keys.size(); begin += count) {
      count = std::min(1 + begin % kChangedKeysAtOnce, keys.size() - begin);
      const auto some = std::span(keys).subspan(begin, count);
      filter.MayContain(some, std::span(contained).first(count));
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(contained[i], filter.MayContain(some[i]));
    }
  }
  filter.AddAll();
  const std::vector<Key> keys = KeysFrom(-5, 10);
  filter.MayContain(keys, std::span(contained).first(10));
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(contained[i]);
}

// Keys that change often take no more room.
TEST(ChangedKeysTest, TheSameKeysAgainDoNotFillIt) {
  ChangedKeys filter;
  const std::vector<Key> keys = KeysFrom(0, 1000);
  for (int i = 0; i < 100; ++i) filter.Add(keys);
  const std::vector<Key> others = KeysFrom(Key{1} << 40, 10'000);
  EXPECT_LT(ContainedCount(filter, others), 10u);
}

TEST(ChangedKeysTest, AddAllContainsEveryKey) {
  ChangedKeys filter;
  filter.AddAll();
  EXPECT_FALSE(filter.empty());
  EXPECT_TRUE(filter.has_all());
  EXPECT_TRUE(filter.MayContain(17));
  EXPECT_EQ(filter.added_count(), 0u);
}

// Those that were not read one by one count too, so that a merge is due.
TEST(ChangedKeysTest, AddAllCountsKeysThatItIsToldOf) {
  ChangedKeys filter;
  filter.Add(KeysFrom(0, 10));
  filter.AddAll(1'000);
  EXPECT_EQ(filter.added_count(), 1'000u);
  filter.AddAll(5);
  EXPECT_EQ(filter.added_count(), 1'000u);
  filter.Add(KeysFrom(0, 10));
  EXPECT_EQ(filter.added_count(), 1'010u);
}

TEST(ChangedKeysTest, AFullOneContainsEveryKey) {
  constexpr uint64_t kFirst = 64;
  constexpr size_t kFits = kFirst * (1 + 4 + 16 + 64 + 256);
  ChangedKeys filter(kFirst);
  const std::vector<Key> fits = KeysFrom(0, kFits);
  filter.Add(fits);
  EXPECT_FALSE(filter.has_all());
  EXPECT_EQ(ContainedCount(filter, fits), kFits);
  EXPECT_LT(ContainedCount(filter, KeysFrom(Key{1} << 40, 10'000)), 100u);
  filter.Add(KeysFrom(kFits, kFits));
  EXPECT_TRUE(filter.has_all());
  EXPECT_TRUE(filter.MayContain(-1));
}

// A reader that is told of a key finds it, while segments are being made.
TEST(ChangedKeysTest, AReaderFindsWhatAWriterHasAdded) {
  ChangedKeys filter;
  constexpr Key kKeys = 200'000;
  std::atomic<Key> added{0};
  std::thread writer([&] {
    for (Key key = 0; key < kKeys; ++key) {
      filter.Add({&key, 1});
      added.store(key + 1, std::memory_order_release);
    }
  });
  uint64_t missing = 0;
  for (Key seen = 0; seen < kKeys;) {
    seen = added.load(std::memory_order_acquire);
    for (Key key = seen > 64 ? seen - 64 : 0; key < seen; ++key)
      missing += filter.MayContain(key) ? 0 : 1;
  }
  writer.join();
  EXPECT_EQ(missing, 0u);
}

}  // namespace
}  // namespace hps
