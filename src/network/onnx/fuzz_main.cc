// The entry point of libFuzzer (CMake option HPS_FUZZ).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "network/onnx/model.h"
#include "network/onnx/split.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = hps::OnnxModel::Parse(std::as_bytes(std::span(data, size)), {});
  if (!model.ok()) return 0;
  if (const auto split = hps::SplitOnnx(*model); split.ok()) {
    const std::string_view network = split->network;
    const auto bytes = std::as_bytes(std::span(network.data(), network.size()));
    if (!hps::OnnxModel::Parse(bytes, {}).ok()) __builtin_trap();
  }
  return 0;
}
