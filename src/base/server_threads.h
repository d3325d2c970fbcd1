// What a server's configuration and this machine's cores ask for: the server makes its threads by
// it, level 1 the buffers of lookups.
#pragma once

#include <cstddef>

#include "hps/server_config.h"

namespace hps {

// Threads of each protocol: [server] threads, or two for each core.
size_t ProtocolThreads(const ServerConfig& config);

// Lookups that run at a time: [server] lookups, or one for each core; a thread of a protocol is
// left for what is no lookup.
size_t LookupSlots(const ServerConfig& config);

}  // namespace hps
