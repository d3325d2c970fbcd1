#include "query/miss_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace hps {
namespace {

TEST(MissListTest, EmptyLists) {
  MissArena arena(4, 2);
  EXPECT_EQ(arena.MakeList().size(), 0);
  EXPECT_EQ(arena.ListOf({}).size(), 0);
  EXPECT_EQ(MissList().size(), 0);
  EXPECT_TRUE(MissList().pending().empty());
}

TEST(MissListTest, KeysAreUniqueAscendingAndKnowTheirPositions) {
  std::mt19937_64 random(3);
  for (size_t count : {1, 31, 32, 33, 1000}) {
    MissArena arena(2 * count, 2);
    for (int round = 0; round < 3; ++round) {
      arena.Reset();
      std::vector<MissList> lists;
      std::vector<std::map<Key, std::set<std::pair<uint32_t, uint32_t>>>> models(2);
      for (auto& model : models) {
        for (uint32_t position = 0; position < count; ++position) {
          const auto small = static_cast<Key>(random() % (count / 2 + 1));
          const Key key = small == 0   ? std::numeric_limits<Key>::min()
                          : small == 1 ? std::numeric_limits<Key>::max()
                                       : -small;
          arena.Add(key, position % 2, position);
          model[key].emplace(position % 2, position);
        }
        lists.push_back(arena.MakeList());
      }
      for (size_t l = 0; l < lists.size(); ++l) {
        ASSERT_EQ(lists[l].size(), models[l].size());
        uint32_t index = 0;
        for (const auto& [key, places] : models[l]) {
          ASSERT_EQ(lists[l].key(index), key);
          ASSERT_EQ(lists[l].pending()[index], index);
          ASSERT_EQ(lists[l].places(index).size(), places.size());
          ASSERT_EQ(lists[l].times_asked(index), places.size());
          for (const MissList::Entry& entry : lists[l].places(index))
            ASSERT_EQ(places.count({entry.query, entry.place}), 1);
          ++index;
        }
      }
    }
  }
}

TEST(MissListTest, NarrowingKeepsWhatStaysOpen) {
  MissArena arena(10, 1);
  const std::vector<Key> keys = {1, 2, 3, 4, 5};
  MissList list = arena.ListOf(keys);
  list.BeginFilter();
  for (size_t i = 0; i < list.pending().size(); ++i) {
    if (list.pending()[i] % 2 == 1) list.Keep(list.pending()[i]);
  }
  list.EndFilter();
  EXPECT_EQ(std::vector<uint32_t>(list.pending().begin(), list.pending().end()),
            (std::vector<uint32_t>{1, 3}));
  list.ClearPending();
  EXPECT_TRUE(list.pending().empty());
}

TEST(MissListTest, KeysInAnyOrderAreSortedWhenALevelNeedsThemSo) {
  MissArena arena(10, 1);
  const std::vector<Key> keys = {5, -1, 3, 9, 0};
  MissList list = arena.ListOf(keys);
  EXPECT_FALSE(list.has_places());
  EXPECT_EQ(list.times_asked(0), 1u);
  list.SortPendingByKey();
  EXPECT_EQ(std::vector<uint32_t>(list.pending().begin(), list.pending().end()),
            (std::vector<uint32_t>{1, 4, 2, 0, 3}));
  EXPECT_EQ(list.key(1), -1) << "indices stay";
}

// A call of keys_max keys that all miss, in lists of one key each, needs all of every array.
TEST(MissListTest, TheArenaHoldsAFullCall) {
  constexpr size_t kKeys = 7;
  MissArena arena(kKeys, kKeys);
  for (int round = 0; round < 2; ++round) {
    arena.Reset();
    std::vector<MissList> lists;
    for (uint32_t i = 0; i < kKeys; ++i) {
      arena.Add(-Key{i}, i, 2 * i);
      EXPECT_EQ(arena.added_count(), 1);
      lists.push_back(arena.MakeList());
    }
    for (uint32_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(lists[i].size(), 1);
      ASSERT_EQ(lists[i].places(0).size(), 1);
      EXPECT_EQ(lists[i].places(0)[0].query, i);
      EXPECT_EQ(lists[i].places(0)[0].place, 2 * i);
    }
  }
}

}  // namespace
}  // namespace hps
