#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_gpu_cache_memory.h"
#include "tests/query/test_level1.h"

namespace hps {

TestLevel1 MakeTestLevel1(uint64_t bytes_max) {
  TestLevel1 level1{.why_skipped = WhyNoGpu()};
  if (!level1.why_skipped.empty()) return level1;
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  level1.cache = *MakeGpuCache({.bytes_max = bytes_max, .calls_max = 8, .call_keys_max = 64 << 10});
  level1.memory = std::make_unique<GpuCacheMemory>();
  return level1;
}

}  // namespace hps
