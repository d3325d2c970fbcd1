// How often the dense network of a model has run, by where (inference/network_places.h).
#pragma once

#include <cstdint>

namespace hps {

// Runs that succeeded.
struct NetworkRuns {
  uint64_t on_devices = 0;
  uint64_t on_cpu = 0;           // of sessions whose GPU does not have the network, or without one
  uint64_t device_failures = 0;  // on the CPU, because the GPU failed
};

}  // namespace hps
