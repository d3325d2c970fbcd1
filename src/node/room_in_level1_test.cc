#include "node/room_in_level1.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(RoomInLevel1Test, IsLeftWhereRowsFindPlaces) {
  LevelStatistics now = {.insertions = 500, .evictions = 100, .dropped = 70};
  RoomInLevel1 room(now);
  for (int i = 0; i < 10; ++i) {
    now.insertions += 15'000;
    now.dropped += 2000;
    EXPECT_TRUE(room.IsLeft(now));
  }
  now.dropped += 16'000;
  EXPECT_TRUE(room.IsLeft(now)) << "too few to tell";
  now.dropped += 1000;
  EXPECT_FALSE(room.IsLeft(now)) << "none of 17,000 found a place";
  now.dropped += 20'000;
  now.insertions += 500;
  EXPECT_FALSE(room.IsLeft(now)) << "next to none";
}

// Catches: a preload that reads all of a table for a level that is full, because lookups promote
// rows meanwhile.
TEST(RoomInLevel1Test, RowsThatPushOthersOutFindNoRoom) {
  LevelStatistics now;
  RoomInLevel1 room(now);
  now.insertions += 50'000;  // all by promotions
  now.evictions += 50'000;
  now.dropped += 20'000;
  EXPECT_FALSE(room.IsLeft(now));
  now.insertions += 10;
  now.evictions += 11;  // one that was counted late
  now.dropped += 20'000;
  EXPECT_FALSE(room.IsLeft(now));
}

}  // namespace
}  // namespace hps
