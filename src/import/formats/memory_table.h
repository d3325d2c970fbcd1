// A table whose keys and rows lie in the caller's memory.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "import/formats/table_reader.h"

namespace hps {

// What messages name instead of a file.
inline constexpr char kMemoryTablePath[] = "rows in memory";

// Borrows the memory of `table` for the reader's life. Errors: INVALID_ARGUMENT (dim; the bytes of
// the rows are not those of the keys' rows).
absl::StatusOr<std::unique_ptr<TableReader>> OpenMemoryTable(const TableInMemory& table);

}  // namespace hps
