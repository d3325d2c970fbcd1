// The keys of one query that the levels asked so far have not answered: each once, with the
// positions that wait for it.
//
// No key is asked of a lower tier twice in a call, and L3 is fastest with ascending keys: sorting
// gives both. Misses that a device has made unique stay in its order, and L3 sorts what it reads. A
// list borrows its memory from a MissArena, which a session makes once; making and narrowing lists
// allocates nothing. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hps/types.h"

namespace hps {

class MissArena;

class MissList {
 public:
  MissList() = default;

  // Unique keys that were put in, open or not.
  size_t size() const { return keys_.size(); }
  Key key(size_t i) const { return keys_[i]; }

  // Positions that ask for unique key `i`. None where the list was made of keys alone.
  struct Entry {
    Key key;
    uint32_t position;
  };
  std::span<const Entry> positions(size_t i) const {
    return entries_.subspan(begin_[i], begin_[i + 1] - begin_[i]);
  }

  // Indices of the unique keys that no level has answered yet, ascending.
  std::span<const uint32_t> open() const { return {open_, open_count_}; }

  // Replaces open() by those of it that stay open: call StaysOpen in ascending order, between
  // BeginNarrowing and EndNarrowing. Elements of open() from the one that is put back on are still
  // the old ones meanwhile.
  void BeginNarrowing() { narrowed_count_ = 0; }
  void StaysOpen(uint32_t index) { open_[narrowed_count_++] = index; }
  void EndNarrowing() { open_count_ = narrowed_count_; }
  void CloseAll() { open_count_ = 0; }

 private:
  friend class MissArena;

  std::span<const Key> keys_;
  std::span<const uint32_t> begin_;  // [size() + 1], into entries_
  std::span<const Entry> entries_;
  uint32_t* open_ = nullptr;
  size_t open_count_ = 0;
  size_t narrowed_count_ = 0;
};

// Memory for the lists of one call. For one thread.
class MissArena {
 public:
  // Of at most `keys_max` keys over all lists. The memory is touched only as it is used.
  explicit MissArena(size_t keys_max, size_t lists_max);

  // Forgets all lists.
  void Reset();

  // Put the positions of one list in, then make it; the list is valid until Reset.
  void Add(Key key, uint32_t position) { entries_[entry_count_++] = {key, position}; }
  MissList MakeList();

  // A list of keys that are unique already, in any order.
  MissList ListOf(std::span<const Key> unique_keys);

  // How many different keys there are. Leaves the lists as they are.
  // REQUIRES: at most keys_max keys.
  size_t CountUnique(std::span<const Key> keys);

 private:
  using Entry = MissList::Entry;

  const std::unique_ptr<Entry[]> entries_;
  const std::unique_ptr<Key[]> keys_;  // of the lists; as many again are CountUnique's scratch
  const std::unique_ptr<uint32_t[]> begin_;
  const std::unique_ptr<uint32_t[]> open_;
  size_t list_begin_ = 0;  // of the entries that are being added
  size_t entry_count_ = 0;
  size_t key_count_ = 0;
  size_t begin_count_ = 0;
  size_t open_used_ = 0;
};

}  // namespace hps
