// The key format in RocksDB: eight bytes whose byte order is the order of signed integers.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "hps/types.h"

namespace hps {

inline constexpr size_t kKeyBytes = 8;

// Big-endian with the sign bit flipped: the smallest key is all zeros, the largest all ones.
constexpr uint64_t OrderedBits(Key key) { return static_cast<uint64_t>(key) ^ (uint64_t{1} << 63); }
constexpr Key KeyOfOrderedBits(uint64_t bits) {
  return static_cast<Key>(bits ^ (uint64_t{1} << 63));
}

inline void EncodeKey(Key key, char* to) { StoreBigEndian64(to, OrderedBits(key)); }
inline Key DecodeKey(const char* from) { return KeyOfOrderedBits(LoadBigEndian64(from)); }

}  // namespace hps
