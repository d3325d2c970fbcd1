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
      keys.insert(ClickModel::KeyOf(table, rank));
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
}

}  // namespace
}  // namespace hps::bench
