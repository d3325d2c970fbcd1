// Visits every entry that an iterator shows and that can be read, around what can't be read.
//
// Keys are numbers here: their ordered bits.
#pragma once

#include <rocksdb/iterator.h>
#include <rocksdb/options.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

// Both ends are included.
struct BitsRange {
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
};

// What a walk finds, in ascending order of keys. An error ends the walk.
class EntryVisitor {
 public:
  virtual ~EntryVisitor() = default;
  // Returns whether to go on.
  virtual absl::StatusOr<bool> OnEntry(uint64_t bits, std::string_view value) = 0;
  // Of the keys in `gap` the iterator shows nothing: a block or file is damaged.
  virtual absl::Status OnGap(BitsRange gap, const rocksdb::Status& why) = 0;
};

// Makes an iterator, each time over the same entries, with `options`.
using IteratorSource =
    std::function<std::unique_ptr<rocksdb::Iterator>(const rocksdb::ReadOptions& options)>;

// Grows with `bits` where one block ends and the next one begins, in every file that may be read:
// how many bytes of files lie before the blocks of that key. Asks indexes alone.
using BytesBefore = std::function<uint64_t(uint64_t bits)>;

// Damage costs the blocks that are damaged: behind each it goes on with the next one, told by
// `bytes_before`, with a search of some hundred steps. A failed read that is no damage (an I/O
// error) is tried once more; then it ends the walk, and nothing is said of the keys behind it.
// Errors, which begin with `what`: the visitor's; UNAVAILABLE, RESOURCE_EXHAUSTED; DATA_LOSS (an
// entry whose key is none of ours).
absl::Status WalkEntries(const IteratorSource& source, const BytesBefore& bytes_before,
                         BitsRange range, const std::string& what, EntryVisitor& visitor);

}  // namespace hps
