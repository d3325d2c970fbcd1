// Raw bytes: views of values as bytes, little- and big-endian integers, arithmetic that can't wrap.
//
// The only header of the host code with reinterpret_cast in it, beside codecs and kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace hps {

static_assert(std::endian::native == std::endian::little,
              "rows and keys are kept in the machine's order, which must be little-endian");

template <typename T>
requires std::is_trivially_copyable_v<T> T LoadLittleEndian(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
requires std::is_trivially_copyable_v<T>
void StoreLittleEndian(void* to, T value) { std::memcpy(to, &value, sizeof(T)); }

inline uint64_t LoadBigEndian64(const void* from) {
  return __builtin_bswap64(LoadLittleEndian<uint64_t>(from));
}

inline void StoreBigEndian64(void* to, uint64_t value) {
  StoreLittleEndian<uint64_t>(to, __builtin_bswap64(value));
}

template <typename T>
std::span<const std::byte> AsBytes(std::span<const T> values) {
  return std::as_bytes(values);
}

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The same memory as elements of T; null if it is not aligned for them.
template <typename T>
requires std::is_trivially_copyable_v<T>
const T* AsAligned(const std::byte* bytes) {
  // The address as a number, to check its alignment.
  const bool is_aligned = reinterpret_cast<uintptr_t>(bytes) % alignof(T) == 0;
  return is_aligned ? reinterpret_cast<const T*>(bytes) : nullptr;
}
template <typename T>
requires(std::is_trivially_copyable_v<T> && sizeof(T) == 1) T* AsElements(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

inline const char* AsChars(const std::byte* bytes) { return reinterpret_cast<const char*>(bytes); }
inline char* AsChars(std::byte* bytes) { return reinterpret_cast<char*>(bytes); }
inline const std::byte* AsBytePointer(const char* chars) {
  return reinterpret_cast<const std::byte*>(chars);
}

// nullopt if the exact result does not fit into 64 bits.
inline std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace hps
