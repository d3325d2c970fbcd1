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

TEST(RedisErrorTest, ARedirectNamesAnAddress) {
  const RedisAddress asked = {.host = "10.0.0.1", .port = 7000};
  const auto to = [&](std::string_view text) {
    const auto address = RedirectOf(text, asked);
    return address.has_value() ? address->Text() : "none";
  };
  EXPECT_EQ(to("MOVED 3999 127.0.0.1:6381"), "127.0.0.1:6381");
  EXPECT_EQ(to("ASK 3999 redis.example:6381"), "redis.example:6381");
  EXPECT_EQ(to("MOVED 3999 ::1:6381"), "[::1]:6381");
  EXPECT_EQ(to("MOVED 3999 :6381"), "10.0.0.1:6381");
  for (const char* text : {"", "MOVED", "MOVED 3999", "MOVED 3999 127.0.0.1", "ASK 3999 h:0",
                           "ASK 3999 h:99999", "MOVED 1:2 h", "TRYAGAIN 3999 127.0.0.1:6381"}) {
    EXPECT_EQ(to(text), "none") << text;
  }
}

TEST(RedisErrorTest, AnErrorsStatusSaysWhatToDo) {
  EXPECT_EQ(StatusOfRedisError("LOADING Redis is loading").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOfRedisError("ASK 1 h:1").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOfRedisError("NOPERM no permission").code(), absl::StatusCode::kPermissionDenied);
  const absl::Status other = StatusOfRedisError("WRONGTYPE Operation against\r\na key");
  EXPECT_EQ(other, absl::FailedPreconditionError(
                       "the server answers: WRONGTYPE Operation against  a key"));
}

}  // namespace
}  // namespace hps
