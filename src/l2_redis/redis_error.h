// What an error reply means to the client.
#pragma once

#include <cstdint>
#include <string_view>

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

}  // namespace hps
