// What an error reply means to the client.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "l2_redis/redis_address.h"

namespace hps {

enum class RedisError : uint8_t {
  kMoved,        // another node has the slot
  kAsk,          // the slot is being moved, and the key is not here
  kTryAgain,     // the slot is being moved, and some of the keys are not here
  kNoScript,     // the script has to be sent
  kOutOfMemory,  // nothing is written: maxmemory is reached, or the disk of snapshots fails
  kNode,         // the node can't serve: CLUSTERDOWN, LOADING, READONLY, NOAUTH, anything else
};

RedisError RedisErrorOf(std::string_view text);

// Where "MOVED <slot> <address>" or "ASK <slot> <address>" sends the client; nothing if the text is
// neither. A host that is left out is that of `asked`, the server that answered.
std::optional<RedisAddress> RedirectOf(std::string_view text, const RedisAddress& asked);

// Of a command that is not redirected. UNAVAILABLE: it may succeed later; PERMISSION_DENIED: user,
// password or ACL; FAILED_PRECONDITION: anything else.
absl::Status StatusOfRedisError(std::string_view text);

}  // namespace hps
