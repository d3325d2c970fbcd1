// From keys to slots: a hash table with linear probing, in one array of 16-byte entries.
//
// It grows by rehashing into an array of twice the size. An erased entry is closed by moving later
// entries up, so there are no tombstones. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "hps/types.h"

namespace hps {

inline constexpr uint32_t kNoRow = UINT32_MAX;

class KeyIndex {
 public:
  KeyIndex();

  static uint64_t Hash(Key key) { return HashKey(key, kTrainIndexHashSeed); }

  void Prefetch(uint64_t hash) const { __builtin_prefetch(&entries_[HomeOf(hash)]); }

  // kNoRow if the key is absent. `hash` is that of the key here and below.
  uint32_t Find(Key key, uint64_t hash) const {
    for (size_t at = HomeOf(hash);; at = Next(at)) {
      const Entry& entry = entries_[at];
      if (entry.slot == kNoRow || entry.key == key) return entry.slot;
    }
  }

  // Makes room for one more key. May throw std::bad_alloc; then nothing changed.
  void Reserve() {
    // At most five eighths are in use: a probe then ends in its first cache line nearly always.
    if ((size_ + 1) * 8 > entries_.size() * 5) Grow();
  }

  // REQUIRES: the key is absent, slot != kNoRow, Reserve was called since the last Insert.
  void Insert(Key key, uint64_t hash, uint32_t slot);

  // REQUIRES: the key is present.
  void Erase(Key key, uint64_t hash);

  size_t size() const { return size_; }
  size_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  struct Entry {
    Key key = 0;
    uint32_t slot = kNoRow;
  };
  static_assert(sizeof(Entry) == 16);

  size_t HomeOf(uint64_t hash) const { return hash >> shift_; }
  size_t Next(size_t at) const { return (at + 1) & (entries_.size() - 1); }
  void Put(Key key, uint64_t hash, uint32_t slot);
  void Grow();

  std::vector<Entry> entries_;  // a power of two of them
  int shift_ = 0;               // 64 - log2 of their number
  size_t size_ = 0;
};

}  // namespace hps
