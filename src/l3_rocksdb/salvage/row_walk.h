// Visits every row of a table that can be read with certainty, around what can't be read.
//
// Where a block or file is damaged, every key that is named elsewhere, by the table's key list or
// by what can be read of other files, is read by itself, as a lookup reads it: files above and
// below the damage may still answer for it, and the damaged file's filter may know that it has no
// part in it. What no lookup could answer is lost: the damaged file might have held a newer row,
// so that an older one below it is not shown.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "l3_rocksdb/database.h"

namespace hps {

// What a walk finds, rows in ascending order of keys. An error ends the walk.
class RowVisitor {
 public:
  virtual ~RowVisitor() = default;
  // The stored value, intact: a row, or the mark of a lost one.
  virtual absl::Status OnRow(Key key, std::string_view value) = 0;
  // A key that exists, and whose row can't be read.
  virtual absl::Status OnLostRow(Key key, const std::string& why) = 0;
  // Among the keys from `first` to `last` there may be some that only the damage has held: written
  // since the import, they are in no list. Comes before the rows of these keys.
  virtual absl::Status OnGap(Key first, Key last, const std::string& why) = 0;
  // Within a gap: nor can it be told which of these keys the import had.
  virtual absl::Status OnDamagedList(Key first, Key last) = 0;
};

// REQUIRES: nobody writes to the table meanwhile, as a repair and a reader see to.
// A failed read that is no damage (an I/O error) is tried once more; then it ends the walk, and
// nothing is said of the keys behind it. Errors: the visitor's; UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::Status WalkRows(const Database::Pin& pin, RowVisitor& visitor);

}  // namespace hps
