// The entry point of libFuzzer (CMake option HPS_FUZZ).
#include <cstddef>
#include <cstdint>

#include "server/grpc_codec/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hps::server::FuzzGrpcInfer(std::as_bytes(std::span<const uint8_t>(data, size)));
  return 0;
}
