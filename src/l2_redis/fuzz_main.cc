// The entry point of libFuzzer; HPS_FUZZ_TARGET names the target (CMake option HPS_FUZZ).
#include <cstddef>
#include <cstdint>

#include "l2_redis/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hps::HPS_FUZZ_TARGET(std::as_bytes(std::span<const uint8_t>(data, size)));
  return 0;
}
