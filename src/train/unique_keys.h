// The different keys of a batch, for exchanges between ranks, and the rank that owns a key.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "hps/types.h"

namespace hps {

struct UniqueKeys {
  std::vector<Key> keys;        // in the order of their first occurrence
  std::vector<int64_t> places;  // of each key of the batch, among `keys`
};

// May throw std::bad_alloc.
UniqueKeys FindUniqueKeys(std::span<const Key> keys);

// Part of the meaning of nothing that is stored: a checkpoint is loaded by any number of ranks.
inline uint32_t OwnerOfKey(Key key, uint32_t rank_count) {
  return static_cast<uint32_t>(HashToRange(HashKey(key, kTrainOwnerHashSeed), rank_count));
}

}  // namespace hps
