// A script for a Redis server, and its SHA-1, by which a server knows it.
#pragma once

#include <string>
#include <string_view>

namespace hps {

struct RedisScript {
  std::string text;
  std::string sha1;  // in hexadecimal digits
};

// How a script is called: by its text, or by its SHA-1, which the server may not know.
struct RedisScriptCall {
  const RedisScript& script;
  bool with_text = false;
};

RedisScript MakeRedisScript(std::string_view text);

}  // namespace hps
