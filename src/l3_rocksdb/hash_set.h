// A set of 16-bit hashes as the catalog keeps it: one bit for each hash, 8,192 bytes; no bytes for
// an empty set. Bit h is bit h mod 8 of byte h / 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hps {

inline constexpr size_t kHashSetBytes = 8192;

// REQUIRES: `set` is empty or has kHashSetBytes.
inline void AddHashes(std::span<const uint16_t> hashes, std::string& set) {
  if (!hashes.empty()) set.resize(kHashSetBytes);
  for (const uint16_t hash : hashes) set[hash / 8] |= static_cast<char>(1 << hash % 8);
}

// Ascending.
inline std::vector<uint16_t> HashesOf(std::string_view set) {
  std::vector<uint16_t> hashes;
  for (size_t hash = 0; hash < set.size() * 8; ++hash) {
    if ((set[hash / 8] >> hash % 8 & 1) != 0) hashes.push_back(static_cast<uint16_t>(hash));
  }
  return hashes;
}

}  // namespace hps
