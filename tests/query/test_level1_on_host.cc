#include "testing/host_device_cache/host_cache.h"
#include "tests/query/test_level1.h"

namespace hps {

TestLevel1 MakeTestLevel1(uint64_t bytes_max) {
  return {.cache = *MakeHostCache({.device = 0, .bytes_max = bytes_max}),
          .memory = std::make_unique<PlainCacheMemory>(MemorySpace::kDevice)};
}

}  // namespace hps
