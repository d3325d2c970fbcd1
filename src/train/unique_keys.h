// The different keys of a batch, for exchanges between ranks, and the rank that owns a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "hps/types.h"

namespace hps {

// Keeps its memory from batch to batch. Not thread-safe.
class UniqueKeys {
 public:
  // Forgets the keys before, and makes room for a batch. May throw std::bad_alloc.
  void Begin(size_t key_count);
  // Adds keys of the batch. REQUIRES: in all at most `key_count`, fewer than 2^32 - 1.
  void Add(std::span<const Key> keys);

  // In the order of their first occurrence.
  std::span<const Key> keys() const { return keys_; }
  // Of each key of the batch, among keys().
  std::span<const uint32_t> places() const { return places_; }

 private:
  std::vector<Key> keys_;
  std::vector<uint32_t> places_;
  std::vector<uint32_t> table_;  // places by hash: linear probing, at most half full
};

// Part of the meaning of nothing that is stored: a checkpoint is loaded by any number of ranks.
inline uint32_t OwnerOfKey(Key key, uint32_t rank_count) {
  return static_cast<uint32_t>(HashToRange(HashKey(key, kTrainOwnerHashSeed), rank_count));
}

}  // namespace hps
