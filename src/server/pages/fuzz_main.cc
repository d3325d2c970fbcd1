// The entry point of libFuzzer (CMake option HPS_FUZZ).
#include <cstddef>
#include <cstdint>

#include "server/pages/fuzz_key_question.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hps::server::FuzzKeyQuestion(std::as_bytes(std::span<const uint8_t>(data, size)));
  return 0;
}
