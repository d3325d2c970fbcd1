#include "query/call_room.h"

#include <gtest/gtest.h>

#include <cstring>

namespace hps {
namespace {

TEST(CallRoomTest, PartsLieBehindOneAnother) {
  CallRoom room;
  room.Begin(100);
  std::byte* const first = room.Take(30);
  EXPECT_EQ(room.Take(0), first + 30);
  EXPECT_EQ(room.Take(70), first + 30);
  std::memset(first, 1, 100);  // for address sanitizer
}

TEST(CallRoomTest, MemoryIsKeptUntilACallNeedsMore) {
  CallRoom room;
  room.Begin(100);
  std::byte* const first = room.Take(100);
  for (const size_t bytes_max : {1, 100}) {
    room.Begin(bytes_max);
    EXPECT_EQ(room.Take(bytes_max), first);
  }
  room.Begin(5000);
  std::memset(room.Take(2500), 1, 2500);
  std::memset(room.Take(2500), 1, 2500);
}

}  // namespace
}  // namespace hps
