// How a row is written in RocksDB (docs/store_format.md, "Row"):
//
//   row        row_bytes   the elements, little-endian; no bytes at all for a lost row
//   version    8           little-endian
//   checksum   8           little-endian; RowChecksum of the above
//
// A value of exactly kRowTailBytes marks a key whose row was lost (a row has at least two bytes):
// the key exists, nobody can say what its row was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "hps/types.h"

namespace hps {

inline constexpr size_t kRowTailBytes = 16;

enum class RowState {
  kIntact,
  kMarkedLost,  // by a repair
  kDamaged,     // of a wrong size, or its checksum is not that of its incarnation, key and bytes
};

// Binds row and version to the incarnation and key that they were written for: XXH3-64 of the bytes
// in front of the checksum, combined with a mix of the two numbers.
uint64_t RowChecksum(Incarnation incarnation, Key key, std::string_view row_and_version);

// Writes version and checksum of the row that lies in front of `tail`.
// REQUIRES: `tail` is followed by kRowTailBytes and preceded by row_bytes of row.
void FinishRow(Incarnation incarnation, Key key, Version version, size_t row_bytes, char* tail);

// Judges a stored value of a table with rows of `row_bytes`.
RowState CheckRow(Incarnation incarnation, Key key, std::string_view value, size_t row_bytes);

// REQUIRES: CheckRow did not say kDamaged.
inline Version RowVersion(std::string_view value) {
  return LoadLittleEndian<uint64_t>(value.data() + value.size() - kRowTailBytes);
}

}  // namespace hps
