// Marks memory that must not be accessed although it is not freed: AddressSanitizer reports
// accesses to it. Without that sanitizer these functions do nothing.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <span>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

namespace hps {

inline constexpr bool kPoisonsMemory = true;

// REQUIRES: `memory` begins and ends at a multiple of 8 bytes. Unpoison it before it is freed.
inline void PoisonMemory(std::span<const std::byte> memory) {
  ASAN_POISON_MEMORY_REGION(memory.data(), memory.size());
}
inline void UnpoisonMemory(std::span<const std::byte> memory) {
  ASAN_UNPOISON_MEMORY_REGION(memory.data(), memory.size());
}

}  // namespace hps
#else
namespace hps {

inline constexpr bool kPoisonsMemory = false;

inline void PoisonMemory(std::span<const std::byte> /*memory*/) {}
inline void UnpoisonMemory(std::span<const std::byte> /*memory*/) {}

}  // namespace hps
#endif
