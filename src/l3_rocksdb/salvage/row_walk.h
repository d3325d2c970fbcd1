// Visits every row of a table whose value is certain, and skips damage.
//
// In a damaged block or file, the walk looks up each key that it knows from another source: the
// table's key list, or the readable entries of other files. Files above and below the damage may
// still answer for the key, and the filter of the damaged file may exclude it. If a lookup could
// not answer, the row is lost. An older row below the damage is not used, because the damaged file
// may have held a newer one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "l3_rocksdb/database.h"

namespace hps {

// Receives rows in ascending key order. An error ends the walk.
class RowVisitor {
 public:
  virtual ~RowVisitor() = default;
  // An intact stored value: a row, or the mark of a lost row.
  virtual absl::Status OnRow(Key key, std::string_view value) = 0;
  // The key exists, but its row is unreadable.
  virtual absl::Status OnLostRow(Key key, const std::string& why) = 0;
  // The damage from `first` to `last` may have held further keys. They were written after the
  // import, so they are in no list. Called before the rows of these keys.
  virtual absl::Status OnGap(Key first, Key last, const std::string& why) = 0;
  // Within a gap: the key list is damaged too, so the imported keys of this range are unknown.
  virtual absl::Status OnDamagedList(Key first, Key last) = 0;
};

// REQUIRES: no process writes to the table during the walk (a repair and a reader ensure this).
// Retries a failed read without damage (an I/O error) once. If that fails too, the walk ends and
// reports nothing about later keys. Errors: the visitor's; UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::Status WalkRows(const Database::Pin& pin, RowVisitor& visitor);

}  // namespace hps
