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

TEST(RedisUrlTest, IsASchemeAndAnAddress) {
  const auto read = [](const std::string& text) {
    const auto url = ParseRedisUrl(text);
    EXPECT_TRUE(url.ok()) << url.status();
    return url.ok() ? url->address.Text() + (url->tls ? " tls" : "") : "";
  };
  EXPECT_EQ(read("redis://127.0.0.1:7000"), "127.0.0.1:7000");
  EXPECT_EQ(read("rediss://redis.example:1/"), "redis.example:1 tls");
  EXPECT_EQ(read("redis://host"), "host:6379");
  EXPECT_EQ(read("redis://[::1]"), "[::1]:6379");
  EXPECT_EQ(read("redis://[::1]:7"), "[::1]:7");
  for (const char* text :
       {"", "redis://", "rediss://", "host:1", "http://host:1", "redis://host:", "redis://host:x",
        "redis://host:1/0", "redis://unix:/r.sock", "redis://::1:7"}) {
    EXPECT_EQ(ParseRedisUrl(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(RedisUrlTest, APasswordIsRefusedAndNotRepeated) {
  const absl::Status status = ParseRedisUrl("redis://user:secret@host:1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find("secret"), absl::string_view::npos);
  const absl::Status parameter = ParseRedisUrl("redis://host:1?password=secret").status();
  EXPECT_EQ(parameter.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parameter.message().find("secret"), absl::string_view::npos);
  EXPECT_NE(status.message().find("password_file"), absl::string_view::npos);
}

}  // namespace
}  // namespace hps
