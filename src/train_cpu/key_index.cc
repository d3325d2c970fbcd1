#include "train_cpu/key_index.h"

#include <bit>
#include <utility>

#include "base/macros.h"

namespace hps {
namespace {

constexpr size_t kEntriesMin = 64;

int ShiftOf(size_t entry_count) { return 64 - std::countr_zero(entry_count); }

}  // namespace

KeyIndex::KeyIndex() : entries_(kEntriesMin), shift_(ShiftOf(kEntriesMin)) {}

void KeyIndex::Insert(Key key, uint64_t hash, uint32_t slot) {
  HPS_DCHECK(slot != kNoRow);
  Put(key, hash, slot);
  ++size_;
}

void KeyIndex::Put(Key key, uint64_t hash, uint32_t slot) {
  size_t at = HomeOf(hash);
  while (entries_[at].slot != kNoRow) at = Next(at);
  entries_[at] = {key, slot};
}

void KeyIndex::Grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  shift_ = ShiftOf(entries_.size());
  for (const Entry& entry : old) {
    if (entry.slot != kNoRow) Put(entry.key, Hash(entry.key), entry.slot);
  }
}

void KeyIndex::Erase(Key key, uint64_t hash) {
  size_t hole = HomeOf(hash);
  while (entries_[hole].key != key || entries_[hole].slot == kNoRow) {
    HPS_DCHECK(entries_[hole].slot != kNoRow);
    hole = Next(hole);
  }
  // An entry moves into the hole unless its home lies after the hole (both seen from the hole on,
  // around the end of the array).
  const size_t mask = entries_.size() - 1;
  for (size_t at = Next(hole); entries_[at].slot != kNoRow; at = Next(at)) {
    const size_t home = HomeOf(Hash(entries_[at].key));
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole] = {};
  --size_;
}

}  // namespace hps
