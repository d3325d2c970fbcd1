// What a table's files hold, whatever their format: keys and rows in the files' own order.
//
// A reader has validated the files' shape when it is made: from then on only the disk can fail.
// Thread-safe: reads are at given positions and share nothing.
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
  Dtype dtype = Dtype::kFloat32;  // of the files; the table's may differ

  uint64_t row_bytes() const { return uint64_t{dim} * ElementBytes(dtype); }

  friend bool operator==(const TableShape&, const TableShape&) = default;
};

class TableReader {
 public:
  virtual ~TableReader() = default;

  virtual const TableShape& shape() const = 0;

  // Bytes of keys and rows that reading everything once takes.
  virtual uint64_t data_bytes() const = 0;

  // Where the keys come from, for messages.
  virtual const std::string& keys_path() const = 0;

  // The keys of rows [first_row, first_row + keys.size()).
  // Errors: DATA_LOSS, which names the file, the offset and what was expected and found.
  virtual absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const = 0;

  // The rows from `first_row` on, packed, in the files' dtype.
  // REQUIRES: rows.size() is a multiple of shape().row_bytes(). Errors: as ReadKeys.
  virtual absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const = 0;
};

}  // namespace hps
