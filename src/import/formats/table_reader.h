// Reads the keys and rows of a table's files, in the order of the files, whatever their format.
//
// Creating a reader validates the shape of the files; afterwards only the disk can fail.
// Thread-safe: reads are at given positions and share no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "hps/types.h"

namespace hps {

struct TableShape {
  uint64_t row_count = 0;
  uint32_t dim = 0;
  Dtype dtype = Dtype::kFloat32;  // of the files; the table's type may differ
  bool keys_repeat = false;       // the last row of a key counts; else one that repeats is an error

  uint64_t row_bytes() const { return uint64_t{dim} * ElementBytes(dtype); }

  friend bool operator==(const TableShape&, const TableShape&) = default;
};

class TableReader {
 public:
  virtual ~TableReader() = default;

  virtual const TableShape& shape() const = 0;

  // Bytes of all keys and rows.
  virtual uint64_t data_bytes() const = 0;

  // The file with the keys, for messages.
  virtual const std::string& keys_path() const = 0;

  // Reads the keys of rows [first_row, first_row + keys.size()). Errors: DATA_LOSS (names the file,
  // the offset, what was expected and what was found).
  virtual absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const = 0;

  // Reads rows, beginning with row `first_row`, packed, in the files' dtype. REQUIRES: rows.size()
  // is a multiple of shape().row_bytes(). Errors: those of ReadKeys.
  virtual absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const = 0;
};

}  // namespace hps
