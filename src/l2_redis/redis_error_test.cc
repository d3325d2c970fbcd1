#include "l2_redis/redis_error.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(RedisErrorTest, KnowsWhatServersSay) {
  EXPECT_EQ(RedisErrorOf("MOVED 3999 127.0.0.1:6381"), RedisError::kMoved);
  EXPECT_EQ(RedisErrorOf("ASK 3999 127.0.0.1:6381"), RedisError::kAsk);
  EXPECT_EQ(RedisErrorOf("TRYAGAIN Multiple keys request during rehashing"), RedisError::kTryAgain);
  EXPECT_EQ(RedisErrorOf("NOSCRIPT No matching script."), RedisError::kNoScript);
  EXPECT_EQ(RedisErrorOf("OOM command not allowed"), RedisError::kOutOfMemory);
  EXPECT_EQ(RedisErrorOf("MISCONF Redis is configured to save"), RedisError::kOutOfMemory);
  for (const char* text :
       {"CLUSTERDOWN The cluster is down", "LOADING Redis is loading", "READONLY You can't write",
        "NOAUTH Authentication required.", "ERR x", "", "MOVEDX"}) {
    EXPECT_EQ(RedisErrorOf(text), RedisError::kNode) << text;
  }
}

}  // namespace
}  // namespace hps
