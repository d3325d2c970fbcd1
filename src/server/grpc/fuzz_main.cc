// The entry points of libFuzzer (CMake option HPS_FUZZ).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "server/grpc/fuzz_wire_target.h"

// HPS_FUZZ_SEEDS: a directory in which to begin a corpus.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* const directory = std::getenv("HPS_FUZZ_SEEDS");
  if (directory == nullptr) return 0;
  size_t number = 0;
  for (const std::string& seed : hps::server::GrpcWireSeeds()) {
    const std::string path = std::string(directory) + "/seed" + std::to_string(number++);
    std::ofstream(path, std::ios::binary) << seed;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hps::server::FuzzGrpcWire(std::as_bytes(std::span<const uint8_t>(data, size)));
  return 0;
}
