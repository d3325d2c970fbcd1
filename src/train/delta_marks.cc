#include "train/delta_marks.h"

#include <algorithm>

namespace hps {

void DeltaMarks::Acknowledge(DeltaReader reader, DeltaMark through) {
  DeltaMark& mark = reader == DeltaReader::kCheckpoint ? saved_ : published_;
  if (through.change == 0 || through.change > mark.change) mark = through;
  absl::erase_if(erased_, [this](const auto& entry) {
    return !IsWanted(entry.second, DeltaReader::kCheckpoint) &&
           !IsWanted(entry.second, DeltaReader::kPublication);
  });
}

void DeltaMarks::AddErased(Key key, bool is_published, bool is_saved, uint32_t change) {
  if (!is_published && !is_saved) return;
  Erased& erased = erased_[key];
  if (is_published) erased.published = change;
  if (is_saved) erased.saved = change;
}

bool DeltaMarks::IsWanted(const Erased& erased, DeltaReader reader) const {
  return reader == DeltaReader::kCheckpoint ? erased.saved > saved_.change
                                            : erased.published > published_.change;
}

std::vector<Key> DeltaMarks::ErasedKeys(DeltaReader reader) const {
  std::vector<Key> keys;
  for (const auto& [key, erased] : erased_) {
    if (IsWanted(erased, reader)) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

uint64_t DeltaMarks::bytes() const {
  // A byte of control for each slot.
  return erased_.capacity() * (sizeof(decltype(erased_)::value_type) + 1);
}

}  // namespace hps
