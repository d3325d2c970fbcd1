// Thread and lookup counts that follow from the configuration and the number of cores. The server
// sizes its threads and level 1 its lookup buffers by them.
#pragma once

#include <cstddef>

#include "hps/server_config.h"

namespace hps {

// Threads of each protocol: [server] threads, or two per core.
size_t ProtocolThreads(const ServerConfig& config);

// Concurrent lookups: [server] lookups, or one per core. At least one thread of each protocol stays
// free for other requests.
size_t LookupSlots(const ServerConfig& config);

}  // namespace hps
