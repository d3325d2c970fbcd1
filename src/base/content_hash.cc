#include "base/content_hash.h"

#include <xxhash.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "base/bytes.h"

namespace hps {

void ContentHash::Add(std::string_view piece) {
  const XXH128_hash_t hash = XXH3_128bits(piece.data(), piece.size());
  for (const uint64_t number : {uint64_t{piece.size()}, hash.high64, hash.low64}) {
    char bytes[sizeof(number)];
    StoreLittleEndian<uint64_t>(bytes, number);
    pieces_.append(bytes, sizeof(bytes));
  }
}

std::string ContentHash::Digits() const {
  const XXH128_hash_t hash = XXH3_128bits(pieces_.data(), pieces_.size());
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
  return digits;
}

}  // namespace hps
