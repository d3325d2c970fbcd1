// Small arrays of the host as arguments of kernels: unlike a copy, they may change after the
// launch, and they need no launch of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace hps {

struct Arguments {
  // All parameters of a kernel have 4,096.
  static constexpr size_t kBytesMax = 3520;

  uint32_t words[kBytesMax / sizeof(uint32_t)];
  uint32_t count;  // words

  // REQUIRES: at most kBytesMax bytes.
  static Arguments Of(std::span<const std::byte> bytes) {
    Arguments arguments;
    arguments.count = static_cast<uint32_t>((bytes.size() + sizeof(uint32_t) - 1) / 4);
    if (!bytes.empty()) std::memcpy(arguments.words, bytes.data(), bytes.size());
    return arguments;
  }

  // All threads of a block call it.
  __device__ void WriteTo(void* to) const {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
      static_cast<uint32_t*>(to)[i] = words[i];
  }
};

}  // namespace hps
