#include "bench/dlrm/click_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hps::bench {
namespace {

TEST(ClickModelTest, ScalesOnlyLargeTables) {
  const ClickModel whole({.scale = 1});
  EXPECT_EQ(whole.table_count(), 26u);
  EXPECT_EQ(whole.row_count(), 33'762'577u);
  const ClickModel quarter({});
  EXPECT_EQ(quarter.rows(0), 1460u);
  EXPECT_EQ(quarter.rows(2), 10'131'227u / 4);
  EXPECT_EQ(ClickModel({.table_count = 130}).row_count(), 5 * quarter.row_count());
}

TEST(ClickModelTest, KeysAndPlacesAreDistinct) {
  const ClickModel model({.scale = 0.001});
  std::set<Key> keys;
  std::set<uint64_t> places;
  for (size_t table = 0; table < model.table_count(); ++table) {
    for (uint64_t rank = 1; rank <= model.rows(table); ++rank) {
      keys.insert(model.KeyOf(table, rank));
      places.insert(model.PlaceOf(table, rank));
    }
  }
  EXPECT_EQ(keys.size(), model.row_count());
  EXPECT_EQ(places.size(), model.row_count());
  EXPECT_EQ(*places.rbegin(), model.row_count() - 1);
}

TEST(ClickStreamTest, SaysWhatTheBestCacheWouldAnswer) {
  const ClickModel model({.scale = 0.001});
  ClickStream stream(model, 1.05, 1);
  EXPECT_EQ(stream.BestHitRate(model.row_count()), 1);
  EXPECT_EQ(stream.BestHitRate(0), 0);
  const uint64_t held = model.row_count() / 10;
  const double best = stream.BestHitRate(held);
  // The rows that a long stream asks for most answer as much of it.
  constexpr size_t kBatch = 200'000;
  std::vector<Key> keys;
  std::vector<uint64_t> places;
  stream.Next(kBatch, &keys, &places);
  std::vector<uint64_t> counts(model.row_count());
  for (const uint64_t place : places) ++counts[place];
  std::sort(counts.rbegin(), counts.rend());
  uint64_t hits = 0;
  for (uint64_t i = 0; i < held; ++i) hits += counts[i];
  EXPECT_NEAR(static_cast<double>(hits) / static_cast<double>(places.size()), best, 0.01);
  // A division by the tables' sizes gives small tables too little.
  std::vector<uint64_t> tenths, all;
  for (size_t table = 0; table < model.table_count(); ++table) {
    all.push_back(model.rows(table) + 7);
    tenths.push_back(model.rows(table) / 10);
  }
  EXPECT_LT(stream.BestHitRate(tenths), best - 0.05);
  EXPECT_DOUBLE_EQ(stream.BestHitRate(all), 1);
}

TEST(ClickStreamTest, PlaysARecordedLog) {
  // Three samples of two tables.
  const RecordedClicks clicks{.keys = {{5, 9}, {7, kNoValue, 8}},
                              .counts = {{2, 1}, {1, 1, 1}},
                              .ranks = {1, 2, 2, 3, 1, 1}};
  const ClickModel model(clicks, 4);
  EXPECT_EQ(model.row_count(), 5u);
  ClickStream stream(model, clicks);
  std::vector<Key> keys;
  std::vector<uint64_t> places;
  stream.Next(2, &keys, &places);
  EXPECT_EQ(keys, (std::vector<Key>{5, 9, kNoValue, 8}));
  EXPECT_EQ(places, (std::vector<uint64_t>{0, 1, 3, 4}));
  stream.Next(2, &keys, &places);
  EXPECT_EQ(keys, (std::vector<Key>{5, 5, 7, kNoValue})) << "again from its begin";
  // Six keys, of which one is asked for twice and the others once.
  for (uint64_t held = 0; held <= 5; ++held) {
    const auto hits = static_cast<double>(held == 0 ? 0 : held + 1);
    EXPECT_NEAR(stream.BestHitRate(held), hits / 6, 1e-9) << held;
  }
  EXPECT_NEAR(stream.BestHitRate(std::vector<uint64_t>{0, 2}), 2.0 / 6, 1e-9);
}

}  // namespace
}  // namespace hps::bench
