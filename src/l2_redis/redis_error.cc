#include "l2_redis/redis_error.h"

namespace hps {

RedisError RedisErrorOf(std::string_view text) {
  const std::string_view code = text.substr(0, text.find(' '));
  if (code == "MOVED") return RedisError::kMoved;
  if (code == "ASK") return RedisError::kAsk;
  if (code == "TRYAGAIN") return RedisError::kTryAgain;
  if (code == "NOSCRIPT") return RedisError::kNoScript;
  if (code == "OOM" || code == "MISCONF") return RedisError::kOutOfMemory;
  return RedisError::kNode;
}

}  // namespace hps
