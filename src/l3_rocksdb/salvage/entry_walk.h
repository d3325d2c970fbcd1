// Visits every readable entry of an iterator and skips damaged blocks.
//
// Keys are given as their ordered bits.
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

// Includes both ends.
struct BitsRange {
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
};

// Receives entries and gaps in ascending key order. An error ends the walk.
class EntryVisitor {
 public:
  virtual ~EntryVisitor() = default;
  // Returns false to end the walk.
  virtual absl::StatusOr<bool> OnEntry(uint64_t bits, std::string_view value) = 0;
  // The iterator shows no key in `gap`, because a block or file is damaged.
  virtual absl::Status OnGap(BitsRange gap, const rocksdb::Status& why) = 0;
};

// Creates an iterator with `options`, always over the same entries.
using IteratorSource =
    std::function<std::unique_ptr<rocksdb::Iterator>(const rocksdb::ReadOptions& options)>;

// The number of file bytes before the blocks of the key `bits`. It increases with `bits` at each
// block boundary of every readable file. Reads only index blocks.
using BytesBefore = std::function<uint64_t(uint64_t bits)>;

// A damaged block costs only its own entries. The walk finds the start of the next block with
// `bytes_before`, by a search of some hundred steps. It retries a failed read without damage (an
// I/O error) once. If that fails too, the walk ends and reports nothing about later keys. Errors,
// prefixed with `what`: the visitor's; UNAVAILABLE, RESOURCE_EXHAUSTED; DATA_LOSS (an entry with an
// invalid key).
absl::Status WalkEntries(const IteratorSource& source, const BytesBefore& bytes_before,
                         BitsRange range, const std::string& what, EntryVisitor& visitor);

}  // namespace hps
