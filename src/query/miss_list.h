// The keys of one table that no level has answered yet: each key once, with the places that wait
// for it.
//
// No key is asked of a lower tier twice in a call, and L3 is fastest with ascending keys. A list
// borrows its memory from a MissArena, which a session makes once; making, sorting and narrowing
// lists allocates nothing. For one thread.
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

  // All unique keys of the list, answered or not.
  size_t size() const { return keys_.size(); }
  Key key(size_t i) const { return keys_[i]; }
  std::span<const Key> keys() const { return keys_; }

  // The places that ask for unique key `i`. A list made by ListOf has none: its indices say where
  // the keys belong.
  struct Entry {
    Key key;
    uint32_t query;  // its number in the call
    uint32_t place;  // see QueryLookup::Answer
  };
  bool has_places() const { return !begin_.empty(); }
  std::span<const Entry> places(size_t i) const {
    return entries_.subspan(begin_[i], begin_[i + 1] - begin_[i]);
  }

  // How often the call asks for unique key `i`; 1 if the list was made by ListOf.
  size_t times_asked(size_t i) const { return has_places() ? places(i).size() : 1; }

  // Indices of the unique keys that no level has answered yet; ascending until SortPendingByKey.
  std::span<const uint32_t> pending() const { return {pending_, pending_count_}; }

  // Puts pending() into the ascending order of its keys. Costs one look at each where it is so.
  void SortPendingByKey();

  // Removes answered keys from pending(): between BeginFilter and EndFilter, call Keep for each key
  // that stays, in the order of pending(). Meanwhile pending() is valid from the kept key on.
  void BeginFilter() { kept_count_ = 0; }
  void Keep(uint32_t index) { pending_[kept_count_++] = index; }
  void KeepFrom(size_t first) {  // all of pending() from here on
    while (first < pending_count_) Keep(pending_[first++]);
  }
  void EndFilter() { pending_count_ = kept_count_; }
  void ClearPending() { pending_count_ = 0; }

 private:
  friend class MissArena;

  std::span<const Key> keys_;
  std::span<const uint32_t> begin_;  // [size() + 1], into entries_
  std::span<const Entry> entries_;
  uint32_t* pending_ = nullptr;
  size_t pending_count_ = 0;
  size_t kept_count_ = 0;
};

// Memory for the lists of one call. For one thread.
class MissArena {
 public:
  // Of at most `keys_max` keys over all lists. The memory is touched only as it is used.
  explicit MissArena(size_t keys_max, size_t lists_max);

  // Forgets all lists.
  void Reset();

  // Put the places of one list in, then make it; the list is valid until Reset. Its keys ascend.
  void Add(Key key, uint32_t query, uint32_t place) {
    entries_[entry_count_++] = {key, query, place};
  }
  size_t added_count() const { return entry_count_ - list_begin_; }  // for the list to be made
  MissList MakeList();

  // A list of keys that are unique already, in any order.
  MissList ListOf(std::span<const Key> unique_keys);

 private:
  using Entry = MissList::Entry;

  const std::unique_ptr<Entry[]> entries_;
  const std::unique_ptr<Key[]> keys_;
  const std::unique_ptr<uint32_t[]> begin_;
  const std::unique_ptr<uint32_t[]> pending_;
  size_t list_begin_ = 0;  // of the entries that are being added
  size_t entry_count_ = 0;
  size_t key_count_ = 0;
  size_t begin_count_ = 0;
  size_t pending_used_ = 0;
};

}  // namespace hps
