// The dump of a HugeCTR table: one file `NAME.bin`.
//
//   4 bytes "bin\0"; u32 version, 1; u32 bytes of a key, 8 or 4; u32 bytes of a row; then records
//   of key and row until the end of the file. All numbers are little-endian. Keys of 4 bytes are
//   unsigned; rows are float32.
//
// A file whose last record is truncated is refused. HugeCTR accepts it and fills the record with
// bytes of another row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "import/formats/table_reader.h"

namespace hps {

inline constexpr char kHugectrDumpExtension[] = ".bin";

// `dim` is required for an empty table whose header has no row size, and checked otherwise. Errors:
// those of opening the file; INVALID_ARGUMENT with file, expected and found.
absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrDump(const std::string& path,
                                                             std::optional<uint32_t> dim);

}  // namespace hps
