// How rows get into level 1: promotions, preload and hot keys.
#include <algorithm>
#include <random>

#include "node/test_device_level.h"

namespace hps {
namespace {

// Catches: a filter that keeps a row out which a lookup has called pending.
TEST_F(DeviceLevelTest, ColdKeysThatAreNotWaitedForAreThereTheNextTime) {
  constexpr size_t kKeys = 100'000;
  config_.l1.bytes_max = uint64_t{32} << 20;
  config_.l2.bytes_max = uint64_t{64} << 20;
  // With the budget that it needs, one of 100,000 keys may lose its place to others.
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_bytes = config_.l1.bytes_max}}}};
  Import(Files("t", kKeys, 3));
  const auto store = Open();
  for (Key first = 0; first < Key{kKeys}; first += 4000)
    EXPECT_EQ(AskWithoutWaiting(*store, Iota(4000, first)), 0u);
  const Answer answer = LookUp(*store, "t", Iota(kKeys), 0, 0.0);
  EXPECT_EQ(answer.counts[kL1], kKeys);
  EXPECT_EQ(answer.value, 3);
}

// The same on the host, where a table with the budget that it needs loses none.
TEST_F(DeviceLevelTest, OnTheHostNoColdKeyLosesItsPlace) {
  constexpr size_t kKeys = 100'000;
  config_.l2.bytes_max = uint64_t{64} << 20;  // more than the table needs, which it does not get
  Import(Files("t", kKeys, 3));
  const auto store = Open();
  for (Key first = 0; first < Key{kKeys}; first += 4000)
    AskWithoutWaiting(*store, Iota(4000, first), -1);
  const Answer answer = LookUp(*store, "t", Iota(kKeys), -1, 0.0);
  EXPECT_EQ(answer.counts[KeyStatus::kHitL2], kKeys);
  EXPECT_EQ(answer.value, 3);
  EXPECT_EQ(store->Statistics().tables.front().l2.evictions, 0u);
}

TEST_F(DeviceLevelTest, PendingRowsEnterFullLevels) {
  config_.l1.bytes_max = Need(5000);
  config_.l2.bytes_max = uint64_t{1} << 20;
  Import(Files("t", 50'000, 3));
  const auto store = Open();
  for (Key first = 0; first < 40'000; first += 1000) {
    LookUp(*store, "t", Iota(1000, first));
    Drain(*store);
  }
  const LevelStatistics l1 = store->Statistics().tables.front().l1;
  EXPECT_GT(l1.not_admitted, 20'000u) << "it is full";
  EXPECT_EQ(AskWithoutWaiting(*store, Iota(300, 45'000)), 0u);
  EXPECT_GE(AskWithoutWaiting(*store, Iota(300, 45'000)), 270u);
}

TEST_F(DeviceLevelTest, OnePassOverColdKeysLeavesTheHitRate) {
  config_.l1.bytes_max = Need(5000);
  config_.l2.preload = 1.0;
  Import(Files("t", 60'000, 3));
  const auto store = Open();
  std::mt19937_64 random(7);
  const auto hit_rate = [&](int calls) {
    uint64_t hits = 0;
    for (int call = 0; call < calls; ++call) {
      std::vector<Key> keys(2000);
      for (Key& key : keys) {
        const double place = static_cast<double>(random() % 1'000'000) * 1e-6;
        key = static_cast<Key>(place * place * place * 12'000);
      }
      hits += LookUp(*store, "t", keys).counts[kL1];
      Drain(*store);
    }
    return static_cast<double>(hits) / (2000.0 * calls);
  };
  hit_rate(40);
  const double before = hit_rate(10);
  EXPECT_GT(before, 0.7);
  for (Key first = 20'000; first < 60'000; first += 2000) {
    LookUp(*store, "t", Iota(2000, first));
    Drain(*store);
  }
  EXPECT_GT(hit_rate(10), before - 0.01);
}

TEST_F(DeviceLevelTest, PreloadsAShareOfEveryTable) {
  config_.l1.preload = 0.5;
  Import(Files("t", 9000, 3));
  const auto store = Open();
  EXPECT_EQ(store->Statistics().tables.front().l1.entries, 4500u);
  const Answer answer = LookUp(*store, "t", Iota(1000, 4000));
  EXPECT_EQ(answer.counts[kL1], 500u);
  EXPECT_EQ(answer.value, 3);
}

TEST_F(DeviceLevelTest, PreloadEndsWhereTheBudgetDoes) {
  config_.l1.preload = 1.0;
  config_.l1.bytes_max = Need(20'000);
  Import(Files("t", 200'000, 3));
  const auto store = Open();
  const LevelStatistics l1 = store->Statistics().tables.front().l1;
  EXPECT_GE(l1.entries, 20'000u);
  EXPECT_LT(l1.insertions, 60'000u);
}

// Catches: a preload that ends with the first row that finds no place.
TEST_F(DeviceLevelTest, PreloadFillsWhatFits) {
  constexpr size_t kRows = 200'000;
  config_.l1.preload = 1.0;
  config_.l1.bytes_max = Need(kRows);  // places for a third more
  Import(Files("t", kRows, 3));
  const auto store = Open();
  const LevelStatistics l1 = store->Statistics().tables.front().l1;
  EXPECT_GT(l1.entries, kRows * 995 / 1000);
  EXPECT_EQ(l1.evictions, 0u);
  EXPECT_EQ(l1.not_admitted, 0u);
}

TEST_F(DeviceLevelTest, LoadsHotKeysAtStart) {
  config_.model = {
      {.name = "m", .table = {{.name = "t", .l1_hot_keys = KeysFile({7, 123456, 5, -1})}}}};
  config_.l2.preload = 1.0;
  Import(Files("t", 6000, 3));
  const auto store = Open();
  EXPECT_EQ(store->Statistics().tables.front().l1.entries, 2u);
  EXPECT_EQ(LookUp(*store, "t", {5, 7}).counts[kL1], 2u);
  EXPECT_EQ(LookUp(*store, "t", {6}).counts[kL1], 0u);
}

// Catches: the coldest keys of a long list, or the preload after it, evict the hottest.
TEST_F(DeviceLevelTest, OfTooManyHotKeysTheHottestStay) {
  config_.l1.bytes_max = Need(5000);
  config_.l1.preload = 1.0;
  std::vector<Key> hot = Iota(30'000);
  std::reverse(hot.begin(), hot.end());
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_hot_keys = KeysFile(hot)}}}};
  Import(Files("t", 30'000, 3));
  const auto store = Open();
  EXPECT_EQ(store->Statistics().tables.front().l1.not_admitted, 0u) << "none has to be frequent";
  const std::vector<Key> hottest(hot.begin(), hot.begin() + 4096);
  EXPECT_GE(LookUp(*store, "t", hottest).counts[kL1], hottest.size() - 40)
      << "next to none is lost";
}

// Catches: a filter that keeps rows out of the new table which the old one held.
TEST_F(DeviceLevelTest, ASwitchOfAFullTableBringsWhatItHeld) {
  config_.l1.bytes_max = 2 * Need(5000);  // for both incarnations
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_bytes = Need(5000)}}}};
  Import(Files("t", 20'000, 1));
  const auto store = Open();
  for (Key first = 0; first < 20'000; first += 1000) {
    LookUp(*store, "t", Iota(1000, first));
    Drain(*store);
  }
  const LevelStatistics before = store->Statistics().tables.front().l1;
  EXPECT_GT(before.not_admitted, 5000u) << "it is full";
  ASSERT_TRUE(store->Import(Files("t", 20'000, 2)).ok());
  const LevelStatistics after = store->Statistics().tables.front().l1;
  EXPECT_GE(after.entries, before.entries * 95 / 100);
  EXPECT_EQ(after.insertions, before.entries) << "each row that it held, no other";
  EXPECT_EQ(after.not_admitted, 0u);
}

// Catches: a process that is told to end but continues to fill its devices.
TEST_F(DeviceLevelTest, NothingIsFilledOnceItIsToEnd) {
  config_.l1.preload = 1.0;
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_hot_keys = KeysFile({7})}}}};
  Import(Files("t", 9000, 3));
  const auto store = Open(OpenMode::kServe);
  store->models().StopPreloading();
  ASSERT_TRUE(store->models().LoadAll().ok());
  EXPECT_EQ(store->Statistics().tables.front().l1.entries, 0u);
  EXPECT_EQ(LookUp(*store, "t", {7}).value, 3);
}

TEST_F(DeviceLevelTest, HotKeysThatCanNotBeReadDoNotStopTheStore) {
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_hot_keys = "/none.npy"}}}};
  Import(Files("t", 10, 3));
  EXPECT_EQ(LookUp(*Open(), "t", {5}).value, 3);
}

}  // namespace
}  // namespace hps
