// Records of misses in host memory, as a probe writes them. Include it in tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hps/types.h"
#include "l1_gpu/misses.h"

namespace hps {

class RecordedMisses {
 public:
  explicit RecordedMisses(size_t keys_max)
      : pinned_(MissPinnedBytes(keys_max)),
        buffers_(CarveMissBuffers(keys_max, nullptr, pinned_.data())) {}

  const MissBuffers& buffers() const { return buffers_; }

  // `index`: the unique index, behind the query's first_key.
  void List(size_t index, Key key, uint32_t position, uint32_t generation) {
    buffers_.records[index] = {
        .key = key, .position = position, .check = MissCheck(key, generation)};
  }
  void ListDuplicates(size_t index, const DuplicateRecord& record) {
    buffers_.duplicate_records[index] = record;
  }

 private:
  std::vector<std::byte> pinned_;
  const MissBuffers buffers_;
};

}  // namespace hps
