// Checks of settings that depend on each other; ValidateConfig (hps/config.h) runs them all.
#pragma once

#include <cstdint>

#include "hps/config.h"

namespace hps {

// The default of server.body_bytes_max: 64 MiB, or less if bytes_in_flight_max is small.
uint64_t DefaultBodyBytesMax(const ServerConfig& config);

}  // namespace hps
