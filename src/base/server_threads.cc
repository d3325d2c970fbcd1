#include "base/server_threads.h"

#include <algorithm>
#include <thread>

namespace hps {
namespace {

size_t Cores() { return std::max(1U, std::thread::hardware_concurrency()); }

}  // namespace

size_t ProtocolThreads(const ServerConfig& config) {
  return config.threads != 0 ? config.threads : 2 * Cores();
}

size_t LookupSlots(const ServerConfig& config) {
  const size_t wanted = config.lookups != 0 ? config.lookups : Cores();
  return std::max<size_t>(1, std::min(wanted, ProtocolThreads(config) - 1));
}

}  // namespace hps
