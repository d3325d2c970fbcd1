// Counts how many different keys there are, in a time that grows with their number only.
//
// For the hit rate, which is over unique keys; a call that hits needs no list of them. An open
// hash table of its own memory, which is touched only as it is used; counting allocates nothing.
// For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hps/types.h"

namespace hps {

class UniqueCounter {
 public:
  explicit UniqueCounter(size_t keys_max);

  // Begins anew, for at most `key_count` keys. REQUIRES: key_count <= keys_max.
  void Begin(size_t key_count);
  void Add(std::span<const Key> keys);
  size_t count() const { return count_; }

 private:
  const uint64_t seed_;  // drawn, so that nobody can choose keys that collide
  const std::unique_ptr<Key[]> places_;
  const std::unique_ptr<uint8_t[]> taken_;
  size_t place_count_ = 0;  // of this count; a power of two, at least twice the keys
  size_t count_ = 0;
};

}  // namespace hps
