#include "train/unique_keys.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace hps {
namespace {

constexpr uint32_t kEmpty = UINT32_MAX;

}  // namespace

void UniqueKeys::Find(std::span<const Key> keys) {
  keys_.clear();
  places_.resize(keys.size());
  table_.assign(std::bit_ceil(std::max<size_t>(keys.size() * 2, 2)), kEmpty);
  const size_t mask = table_.size() - 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key key = keys[i];
    size_t at = HashKey(key, kTrainIndexHashSeed) & mask;
    while (table_[at] != kEmpty && keys_[table_[at]] != key) at = (at + 1) & mask;
    if (table_[at] == kEmpty) {
      table_[at] = static_cast<uint32_t>(keys_.size());
      keys_.push_back(key);
    }
    places_[i] = table_[at];
  }
}

}  // namespace hps
