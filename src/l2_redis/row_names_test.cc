#include "l2_redis/row_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "l2_redis/slots.h"

namespace hps {
namespace {

std::string NameOf(const RowNames& names, uint64_t generation, Key key) {
  std::string part;
  names.AppendName(names.PartitionOf(key), generation, key, part);
  EXPECT_EQ(part.size(), names.name_part_bytes());
  const size_t begin = part.find('\n') + 1;
  const std::string name = part.substr(begin, part.size() - begin - 2);
  EXPECT_EQ(part, absl::StrCat("$", name.size(), "\r\n", name, "\r\n"));
  return name;
}

TEST(RowNamesTest, ANameIsInTheSlotOfItsPartition) {
  const RowNames names("hps", (Incarnation{1} << kIncarnationBits) - 1, 64);
  std::set<uint16_t> slots;
  for (Key key = -500; key < 500; ++key) {
    const std::string name = NameOf(names, 0x7d7b7d7b7d7b, key);  // braces
    EXPECT_EQ(name.size(), 28u);
    EXPECT_EQ(RedisSlotOf(name), names.slot(names.PartitionOf(key)));
    slots.insert(RedisSlotOf(name));
  }
  EXPECT_EQ(slots.size(), 64u);
  // A third of the partitions for each of three masters.
  const auto first_third = std::count_if(slots.begin(), slots.end(),
                                         [](uint16_t slot) { return slot < kRedisSlotCount / 3; });
  EXPECT_NEAR(static_cast<double>(first_third), 64.0 / 3, 1);
}

TEST(RowNamesTest, EveryPartMakesAnotherName) {
  std::set<std::string> seen;
  for (const char* prefix : {"a", "b"}) {
    for (const Incarnation incarnation : {Incarnation{1}, Incarnation{1} << 51}) {
      const RowNames names(prefix, incarnation, 4);
      for (const uint64_t generation : {0, 1, 0xffffff}) {
        for (const Key key : {Key{0}, Key{-1}, std::numeric_limits<Key>::min(), Key{1} << 40})
          EXPECT_TRUE(seen.insert(NameOf(names, generation, key)).second);
      }
    }
  }
}

TEST(KeyGroupsTest, GroupsFromTheLastKeyToTheFirst) {
  const RowNames names("hps", 1, 7);
  std::vector<Key> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i % 300);
  KeyGroups groups;
  groups.Group(names, keys);
  std::set<uint32_t> seen;
  for (size_t partition = 0; partition < 7; ++partition) {
    for (uint32_t at = groups.begins[partition]; at < groups.begins[partition + 1]; ++at) {
      const uint32_t position = groups.positions[at];
      EXPECT_EQ(names.PartitionOf(keys[position]), partition);
      EXPECT_TRUE(seen.insert(position).second);
      if (at > groups.begins[partition]) {
        EXPECT_LT(position, groups.positions[at - 1]);
      }
    }
  }
  EXPECT_EQ(seen.size(), keys.size());
  groups.Group(names, {});
  EXPECT_EQ(groups.begins.back(), 0u);
}

}  // namespace
}  // namespace hps
