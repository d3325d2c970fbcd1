// The row format in RocksDB (docs/store_format.md, "Row"):
//
//   row        row_bytes   the elements, little-endian
//   version    8           little-endian
//   checksum   8           little-endian; RowChecksum of the fields above
//
// A row has at least two bytes. So a value of kDeletionBytes, with a zero for the row, says that
// the row that a page file has for the key was deleted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "hps/types.h"

namespace hps {

inline constexpr size_t kRowTailBytes = 16;
inline constexpr size_t kDeletionBytes = 1 + kRowTailBytes;

enum class RowState {
  kIntact,
  kDeleted,
  kDamaged,  // wrong size, or a checksum of other bytes, another key or incarnation
};

// Binds row and version to their incarnation and key: the XXH3-64 of the bytes before the checksum,
// combined with a mix of the two numbers.
uint64_t RowChecksum(Incarnation incarnation, Key key, std::string_view row_and_version);

// Writes version and checksum of the row in front of `tail`. REQUIRES: row_bytes bytes of row
// precede `tail`, and kRowTailBytes bytes follow it.
void FinishRow(Incarnation incarnation, Key key, Version version, size_t row_bytes, char* tail);

// Checks a stored value of a table with rows of `row_bytes`.
RowState CheckRow(Incarnation incarnation, Key key, std::string_view value, size_t row_bytes);

// REQUIRES: CheckRow did not return kDamaged.
inline Version RowVersion(std::string_view value) {
  return LoadLittleEndian<uint64_t>(value.data() + value.size() - kRowTailBytes);
}

}  // namespace hps
