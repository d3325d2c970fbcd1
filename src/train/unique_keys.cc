#include "train/unique_keys.h"

#include <algorithm>
#include <bit>

namespace hps {
namespace {

constexpr uint32_t kEmpty = UINT32_MAX;

}  // namespace

void UniqueKeys::Begin(size_t key_count) {
  keys_.clear();
  places_.clear();
  places_.reserve(key_count);
  table_.assign(std::bit_ceil(std::max<size_t>(key_count * 2, 2)), kEmpty);
}

void UniqueKeys::Add(std::span<const Key> keys) {
  const size_t mask = table_.size() - 1;
  for (const Key key : keys) {
    size_t at = HashKey(key, kTrainIndexHashSeed) & mask;
    while (table_[at] != kEmpty && keys_[table_[at]] != key) at = (at + 1) & mask;
    if (table_[at] == kEmpty) {
      table_[at] = static_cast<uint32_t>(keys_.size());
      keys_.push_back(key);
    }
    places_.push_back(table_[at]);
  }
}

}  // namespace hps
