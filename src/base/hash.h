// The hash functions of hps. Each use has its own seed, so that keys that collide in one use are
// spread in the others.
#pragma once

#include <cstdint>

#include "hps/types.h"

namespace hps {

// Kafka's partition of a key is XXH64 with seed 0 (compatible with HugeCTR).
inline constexpr uint64_t kStreamHashSeed = 0;
inline constexpr uint64_t kL1HashSeed = 0x9e3779b97f4a7c15;
inline constexpr uint64_t kL2HashSeed = 0xc2b2ae3d27d4eb4f;
inline constexpr uint64_t kWatermarkHashSeed = 0x165667b19e3779f9;
inline constexpr uint64_t kCounterHashSeed = 0x27d4eb2f165667c5;
inline constexpr uint64_t kTrainIndexHashSeed = 0x85ebca77c2b2ae63;
inline constexpr uint64_t kTrainOwnerHashSeed = 0xd6e8feb86659fd93;

// XXH64 of the key's eight little-endian bytes, specialized for this length so that it inlines.
// Source: the xxHash specification, section "XXH64". A test compares it with the library.
constexpr uint64_t HashKey(Key key, uint64_t seed) {
  constexpr uint64_t kPrime1 = 0x9e3779b185ebca87;
  constexpr uint64_t kPrime2 = 0xc2b2ae3d27d4eb4f;
  constexpr uint64_t kPrime3 = 0x165667b19e3779f9;
  constexpr uint64_t kPrime4 = 0x85ebca77c2b2ae63;
  constexpr uint64_t kPrime5 = 0x27d4eb2f165667c5;
  auto rotate = [](uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); };
  uint64_t hash = seed + kPrime5 + sizeof(key);
  hash ^= rotate(static_cast<uint64_t>(key) * kPrime2, 31) * kPrime1;
  hash = rotate(hash, 27) * kPrime1 + kPrime4;
  hash ^= hash >> 33;
  hash *= kPrime2;
  hash ^= hash >> 29;
  hash *= kPrime3;
  hash ^= hash >> 32;
  return hash;
}

__extension__ using Uint128 = unsigned __int128;

// Maps a hash onto [0, count) without a division (D. Lemire, "Fast random integer generation in an
// interval", 2019). REQUIRES: count > 0.
constexpr uint64_t HashToRange(uint64_t hash, uint64_t count) {
  return static_cast<uint64_t>((static_cast<Uint128>(hash) * count) >> 64);
}

}  // namespace hps
