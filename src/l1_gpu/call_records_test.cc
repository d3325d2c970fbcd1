#include "l1_gpu/call_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "l1_gpu/test_recorded_misses.h"
#include "tier/direct_rows.h"

namespace hps {
namespace {

using testing::ElementsAre;

constexpr uint32_t kGeneration = 7;

class CallRecordsTest : public testing::Test {
 protected:
  static constexpr size_t kKeysMax = 200;

  // Begins a lookup of queries with so many keys each.
  void Begin(const std::vector<uint32_t>& key_counts, const DirectRows* direct = nullptr) {
    records_.Clear();
    for (const uint32_t count : key_counts)
      records_.AddQuery({.key_count = count, .direct = direct});
    records_.set_generation(kGeneration);
  }

  std::vector<Key> Keys(size_t query) const {
    return {records_.keys()[query].begin(), records_.keys()[query].end()};
  }

  std::vector<std::pair<size_t, uint32_t>> Duplicates(size_t query) {
    std::vector<std::pair<size_t, uint32_t>> found;
    records_.ForEachDuplicate(
        query, [&](size_t unique, uint32_t count) { found.emplace_back(unique, count); });
    return found;
  }

  RecordedMisses misses_{kKeysMax};
  CallRecords records_{misses_.buffers(), kKeysMax};
};

TEST_F(CallRecordsTest, ReadsInPartsWhatTheProbeHasListed) {
  Begin({5, 0, 3});
  EXPECT_EQ(records_.key_count(), 8u);
  EXPECT_EQ(records_.queries()[2].first_key, 5u);
  EXPECT_TRUE(records_.Read(0, SIZE_MAX));
  EXPECT_THAT(Keys(0), ElementsAre());
  for (uint32_t i = 0; i < 3; ++i) misses_.List(i, 10 + i, i, kGeneration);
  EXPECT_FALSE(records_.Read(0, 2));
  EXPECT_THAT(Keys(0), ElementsAre(10, 11));
  const Key* const first = records_.keys()[0].data();
  EXPECT_TRUE(records_.Read(0, 2));
  EXPECT_THAT(Keys(0), ElementsAre(10, 11, 12));
  for (uint32_t i = 3; i < 5; ++i) misses_.List(i, 10 + i, i, kGeneration);
  misses_.List(5, 100, 0, kGeneration);
  EXPECT_TRUE(records_.Read(0, 2)) << "all keys of the query";
  EXPECT_THAT(Keys(0), ElementsAre(10, 11, 12, 13, 14));
  EXPECT_EQ(records_.keys()[0].data(), first) << "later results begin with the same keys";
  EXPECT_TRUE(records_.Read(1, SIZE_MAX));
  EXPECT_THAT(Keys(1), ElementsAre());
  EXPECT_TRUE(records_.Read(2, SIZE_MAX));
  EXPECT_THAT(Keys(2), ElementsAre(100));
}

// Catches records of an earlier lookup that are taken for this one's.
TEST_F(CallRecordsTest, EndsAtTheFirstRecordOfAnotherGeneration) {
  for (uint32_t i = 0; i < 4; ++i) {
    misses_.List(i, i, i, kGeneration - 1);
    misses_.ListDuplicates(i, {.position = 0, .count = 1, .generation = kGeneration - 1});
  }
  misses_.List(0, 20, 2, kGeneration);
  misses_.ListDuplicates(0, {.position = 2, .count = 3, .generation = kGeneration});
  Begin({6});
  records_.Read(0, SIZE_MAX);
  EXPECT_THAT(Keys(0), ElementsAre(20));
  ASSERT_EQ(records_.Duplicates(0).size(), 1u);
  EXPECT_EQ(records_.Duplicates(0)[0].count, 3u);
  Begin({6});
  records_.set_generation(kGeneration + 1);
  records_.Read(0, SIZE_MAX);
  EXPECT_THAT(Keys(0), ElementsAre());
  EXPECT_TRUE(records_.Duplicates(0).empty());
}

TEST_F(CallRecordsTest, FindsTheKeysThatDuplicatesWaitFor) {
  for (int round = 0; round < 2; ++round) {
    Begin({70, 130});
    misses_.List(0, 1, 0, kGeneration);
    misses_.ListDuplicates(0, {.position = 0, .count = 9, .generation = kGeneration});
    misses_.List(70, 1, 129, kGeneration);
    misses_.List(71, 2, 64 | kAnsweredOnDevice, kGeneration);
    misses_.List(72, 3, 0, kGeneration);
    misses_.ListDuplicates(70, {.position = 64, .count = 32, .generation = kGeneration});
    misses_.ListDuplicates(71, {.position = 129, .count = 2, .generation = kGeneration});
    misses_.ListDuplicates(72, {.position = 64, .count = 1, .generation = kGeneration});
    for (size_t query : {0, 1}) records_.Read(query, SIZE_MAX);
    EXPECT_THAT(Duplicates(1), ElementsAre(std::pair(1, 32), std::pair(0, 2), std::pair(1, 1)));
    EXPECT_THAT(Duplicates(0), ElementsAre(std::pair(0, 9)));
  }
}

TEST_F(CallRecordsTest, TheDeviceMustHaveAnsweredEveryPosition) {
  const auto answered = [&](bool key, uint32_t open_count, const DirectRows* direct) {
    Begin({10}, direct);
    misses_.List(0, 1, 4 | kAnsweredOnDevice, kGeneration);
    misses_.List(1, 2, key ? 5 | kAnsweredOnDevice : 5, kGeneration);
    misses_.ListDuplicates(
        0, {.position = 4, .count = 2, .generation = kGeneration, .open_count = open_count});
    records_.Read(0, SIZE_MAX);
    return records_.AreAnsweredOnDevice(0);
  };
  const DirectRows direct;
  EXPECT_TRUE(answered(true, 0, &direct));
  EXPECT_FALSE(answered(false, 0, &direct));
  EXPECT_FALSE(answered(true, 1, &direct));
  EXPECT_FALSE(answered(true, 0, nullptr)) << "the device was not asked";
}

// The device is played by a thread, which writes a record's check last.
TEST_F(CallRecordsTest, ReadsWhileRecordsAreWritten) {
  Begin({kKeysMax});
  std::thread device([&] {
    for (uint32_t i = 0; i < kKeysMax; ++i) {
      MissRecord& record = misses_.buffers().records[i];
      __atomic_store_n(&record.key, Key{i} - 50, __ATOMIC_RELAXED);
      record.position = i;
      __atomic_store_n(&record.check, MissCheck(Key{i} - 50, kGeneration), __ATOMIC_RELEASE);
    }
  });
  while (records_.keys()[0].size() < kKeysMax) records_.Read(0, 7);
  device.join();
  std::vector<Key> expected(kKeysMax);
  std::iota(expected.begin(), expected.end(), -50);
  EXPECT_EQ(Keys(0), expected);
}

}  // namespace
}  // namespace hps
