// A change of rows, for Store::Apply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hps/types.h"

namespace hps {

// Largest change, in bytes of its rows, or of its keys if it deletes.
inline constexpr size_t kUpdateBytesMax = size_t{16} << 20;

// Borrows keys and rows for the call. If a key occurs twice, its last row counts. NaN and
// infinities are stored as they are.
struct TableUpdate {
  std::string table;  // "<model>/<table>"
  std::span<const Key> keys;
  std::span<const std::byte> rows{};  // [n, dim] packed, little-endian; empty for a delete
  uint32_t dim = 0;                   // must be the table's; ignored for a delete
  // The table's; or float32, which becomes the nearest values of the table's. A finite value that
  // would become infinite is INVALID_ARGUMENT, and nothing changes.
  Dtype dtype = Dtype::kFloat32;
  bool is_delete = false;  // removes the keys instead
};

}  // namespace hps
