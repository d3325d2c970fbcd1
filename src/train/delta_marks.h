// How far each reader of a table's changes has come, and which rows that it has had were erased.
//
// Rows that no reader has had are not recorded, so the erased rows are at most as many as those of
// the readers' last deltas. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hps/types.h"
#include "train/table_rows.h"

namespace hps {

class DeltaMarks {
 public:
  // What the reader has acknowledged.
  const DeltaMark& of(DeltaReader reader) const {
    return reader == DeltaReader::kCheckpoint ? saved_ : published_;
  }
  void Acknowledge(DeltaReader reader, DeltaMark through);

  // A row was erased by this change. May throw std::bad_alloc.
  void AddErased(Key key, bool is_published, bool is_saved, uint32_t change);
  // Sorted: keys that the reader has had and whose rows were erased after its mark, whether or not
  // they have new ones. May throw std::bad_alloc.
  std::vector<Key> ErasedKeys(DeltaReader reader) const;

  uint64_t bytes() const;

 private:
  // The number of the change that erased the row; 0: the reader has not had it.
  struct Erased {
    uint32_t published = 0;
    uint32_t saved = 0;
  };

  bool IsWanted(const Erased& erased, DeltaReader reader) const;

  DeltaMark published_;
  DeltaMark saved_;
  absl::flat_hash_map<Key, Erased> erased_;
};

}  // namespace hps
