#include "query/miss_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace hps {
namespace {

TEST(MissListTest, EmptyLists) {
  MissArena arena(4, 2);
  EXPECT_EQ(arena.MakeList().size(), 0);
  EXPECT_EQ(arena.ListOf({}).size(), 0);
  EXPECT_EQ(MissList().size(), 0);
  EXPECT_TRUE(MissList().open().empty());
}

TEST(MissListTest, KeysAreUniqueAscendingAndKnowTheirPositions) {
  std::mt19937_64 random(3);
  for (size_t count : {1, 31, 32, 33, 1000}) {
    MissArena arena(2 * count, 2);
    for (int round = 0; round < 3; ++round) {
      arena.Reset();
      std::vector<MissList> lists;
      std::vector<std::map<Key, std::vector<uint32_t>>> models(2);
      for (auto& model : models) {
        for (uint32_t position = 0; position < count; ++position) {
          const auto small = static_cast<Key>(random() % (count / 2 + 1));
          const Key key = small == 0   ? std::numeric_limits<Key>::min()
                          : small == 1 ? std::numeric_limits<Key>::max()
                                       : -small;
          arena.Add(key, position);
          model[key].push_back(position);
        }
        lists.push_back(arena.MakeList());
      }
      for (size_t l = 0; l < lists.size(); ++l) {
        ASSERT_EQ(lists[l].size(), models[l].size());
        uint32_t index = 0;
        for (const auto& [key, positions] : models[l]) {
          ASSERT_EQ(lists[l].key(index), key);
          ASSERT_EQ(lists[l].open()[index], index);
          ASSERT_EQ(lists[l].positions(index).size(), positions.size());
          for (size_t i = 0; i < positions.size(); ++i)
            ASSERT_EQ(lists[l].positions(index)[i].position, positions[i]);
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
  list.BeginNarrowing();
  for (size_t i = 0; i < list.open().size(); ++i) {
    if (list.open()[i] % 2 == 1) list.StaysOpen(list.open()[i]);
  }
  list.EndNarrowing();
  EXPECT_EQ(std::vector<uint32_t>(list.open().begin(), list.open().end()),
            (std::vector<uint32_t>{1, 3}));
  list.CloseAll();
  EXPECT_TRUE(list.open().empty());
}

TEST(MissListTest, CountsUniqueKeysBesideLists) {
  MissArena arena(8, 1);
  arena.Add(9, 0);
  arena.Add(7, 1);
  const MissList list = arena.MakeList();
  const std::vector<Key> keys = {3, -3, 3, 3, 0, -3};
  EXPECT_EQ(arena.CountUnique(keys), 3);
  EXPECT_EQ(list.key(0), 7) << "the lists made before are untouched";
}

// Catches a scratch that was only what the lists had left of the arena: a call of keys_max keys
// that all missed wrote past its end.
TEST(MissListTest, CountsUniqueKeysBesideFullLists) {
  MissArena arena(4, 1);
  const std::vector<Key> keys = {5, 6, 7, 8};
  for (uint32_t i = 0; i < keys.size(); ++i) arena.Add(keys[i], i);
  const MissList list = arena.MakeList();
  EXPECT_EQ(arena.CountUnique(keys), keys.size());
  for (uint32_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(list.positions(i).size(), 1);
    EXPECT_EQ(list.positions(i)[0].position, i);
    EXPECT_EQ(list.open()[i], i);
  }
}

}  // namespace
}  // namespace hps
