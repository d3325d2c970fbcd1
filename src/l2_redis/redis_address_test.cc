#include "l2_redis/redis_address.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(RedisAddressTest, ReadsWhatItWrites) {
  for (const char* text :
       {"127.0.0.1:6379", "redis.example:1", "[::1]:65535", "unix:/run/r.sock"}) {
    const auto address = ParseRedisAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->Text(), text);
  }
  EXPECT_EQ(ParseRedisAddress("[::1]:7")->host, "::1");
}

TEST(RedisAddressTest, RefusesOtherText) {
  for (const std::string& text :
       {std::string(""), std::string("host"), std::string("host:"), std::string(":1"),
        std::string("host:0"), std::string("host:65536"), std::string("host:x"),
        std::string("::1:6379"), std::string("[]:1"), std::string("unix:"),
        "unix:/" + std::string(200, 'x')}) {
    EXPECT_EQ(ParseRedisAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace hps
