#include "l2_redis/shared_scripts.h"

#include <gtest/gtest.h>

#include "l2_redis/redis_script.h"
#include "l2_redis/test_redis.h"

namespace hps {
namespace {

TEST(SharedScriptsTest, AServerKnowsThemByTheirNumbers) {
  TestRedis redis({});
  for (const RedisScript& script : {SharedInsertScript(), SharedChangeScript()}) {
    EXPECT_EQ(redis.Ask(0, {"SCRIPT", "LOAD", script.text}).text, script.sha1);
  }
  EXPECT_EQ(MakeRedisScript("return 1").sha1, redis.Ask(0, {"SCRIPT", "LOAD", "return 1"}).text);
  EXPECT_NE(SharedInsertScript().sha1, SharedChangeScript().sha1);
}

}  // namespace
}  // namespace hps
