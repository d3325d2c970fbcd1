#include "l2_redis/slots.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace hps {
namespace {

TEST(RedisSlotsTest, AgreesWithTheSpecification) {
  EXPECT_EQ(RedisCrc16("123456789"), 0x31c3);
  EXPECT_EQ(RedisSlotOf("foo"), 12182);
  EXPECT_EQ(RedisSlotOf(""), 0);
}

TEST(RedisSlotsTest, OnlyTheFirstTagCounts) {
  EXPECT_EQ(RedisSlotOf("{user1000}.following"), RedisSlotOf("user1000"));
  EXPECT_EQ(RedisSlotOf("foo{bar}{zap}"), RedisSlotOf("bar"));
  EXPECT_EQ(RedisSlotOf("foo{{bar}}zap"), RedisSlotOf("{bar"));
  // An empty tag, or one that does not end, is none.
  EXPECT_EQ(RedisSlotOf("foo{}{bar}"), RedisCrc16("foo{}{bar}") % kRedisSlotCount);
  EXPECT_EQ(RedisSlotOf("foo{bar"), RedisCrc16("foo{bar") % kRedisSlotCount);
}

TEST(RedisSlotsTest, ATagIsNearItsSlot) {
  for (int slot = 0; slot < static_cast<int>(kRedisSlotCount); slot += 37) {
    const std::string tag = RedisTagNear(static_cast<uint16_t>(slot));
    EXPECT_EQ(tag.size(), 2u);
    EXPECT_LE(std::abs(RedisSlotOf(tag) - slot), 64) << slot;
  }
}

}  // namespace
}  // namespace hps
