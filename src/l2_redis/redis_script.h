// A script for a Redis server, and its SHA-1, by which a server knows it.
#pragma once

#include <string>
#include <string_view>

namespace hps {

struct RedisScript {
  std::string text;
  std::string sha1;  // in hexadecimal digits
};

RedisScript MakeRedisScript(std::string_view text);

}  // namespace hps
