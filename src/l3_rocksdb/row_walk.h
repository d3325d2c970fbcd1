// Visits every row of a table that can be read, around what can't be read.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "l3_rocksdb/database.h"

namespace hps {

// What a walk finds, in ascending order of keys. An error ends the walk.
class RowVisitor {
 public:
  virtual ~RowVisitor() = default;
  // The stored value, intact: a row, or the mark of a lost one.
  virtual absl::Status OnRow(Key key, std::string_view value) = 0;
  virtual absl::Status OnDamagedRow(Key key) = 0;
  // Of the keys from `first` to `last` nothing can be said: a block or file is damaged.
  virtual absl::Status OnGap(Key first, Key last, const std::string& why) = 0;
};

// REQUIRES: nobody writes to the table meanwhile, as a repair and a reader see to.
// A failed read that is no damage (an I/O error) is tried once more; then it ends the walk, and
// nothing is said of the keys behind it. Errors: the visitor's; UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::Status WalkRows(const Database::Pin& pin, RowVisitor& visitor);

}  // namespace hps
