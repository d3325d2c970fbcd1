#include "query/miss_list.h"

#include <algorithm>
#include <numeric>

namespace hps {

void MissList::SortPendingByKey() {
  const auto ascending = [this](uint32_t a, uint32_t b) { return keys_[a] < keys_[b]; };
  if (!std::is_sorted(pending_, pending_ + pending_count_, ascending))
    std::sort(pending_, pending_ + pending_count_, ascending);
}

MissArena::MissArena(size_t keys_max, size_t lists_max)
    : entries_(new Entry[keys_max]),
      keys_(new Key[keys_max]),
      begin_(new uint32_t[keys_max + lists_max]),
      pending_(new uint32_t[keys_max]) {}

void MissArena::Reset() {
  list_begin_ = entry_count_ = key_count_ = begin_count_ = pending_used_ = 0;
}

MissList MissArena::MakeList() {
  const std::span<Entry> entries(entries_.get() + list_begin_, entry_count_ - list_begin_);
  list_begin_ = entry_count_;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.key != b.key) return a.key < b.key;
    return a.query != b.query ? a.query < b.query : a.place < b.place;
  });
  Key* const keys = keys_.get() + key_count_;
  uint32_t* const begin = begin_.get() + begin_count_;
  size_t unique_count = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0 && entries[i].key == entries[i - 1].key) continue;
    keys[unique_count] = entries[i].key;
    begin[unique_count++] = static_cast<uint32_t>(i);
  }
  begin[unique_count] = static_cast<uint32_t>(entries.size());
  MissList list = ListOf({keys, unique_count});
  list.begin_ = {begin, unique_count + 1};
  list.entries_ = entries;
  key_count_ += unique_count;
  begin_count_ += unique_count + 1;
  return list;
}

MissList MissArena::ListOf(std::span<const Key> unique_keys) {
  MissList list;
  list.keys_ = unique_keys;
  list.pending_ = pending_.get() + pending_used_;
  list.pending_count_ = unique_keys.size();
  std::iota(list.pending_, list.pending_ + unique_keys.size(), 0U);
  pending_used_ += unique_keys.size();
  return list;
}

}  // namespace hps
