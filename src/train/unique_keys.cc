#include "train/unique_keys.h"

#include <bit>
#include <cstddef>

namespace hps {
namespace {

constexpr uint32_t kEmpty = UINT32_MAX;

}  // namespace

UniqueKeys FindUniqueKeys(std::span<const Key> keys) {
  UniqueKeys unique;
  unique.places.reserve(keys.size());
  // Linear probing in an array that is at most half full.
  std::vector<uint32_t> table(std::bit_ceil(keys.size() * 2 + 1), kEmpty);
  const size_t mask = table.size() - 1;
  for (const Key key : keys) {
    size_t at = HashKey(key, kTrainIndexHashSeed) & mask;
    while (table[at] != kEmpty && unique.keys[table[at]] != key) at = (at + 1) & mask;
    if (table[at] == kEmpty) {
      table[at] = static_cast<uint32_t>(unique.keys.size());
      unique.keys.push_back(key);
    }
    unique.places.push_back(table[at]);
  }
  return unique;
}

}  // namespace hps
