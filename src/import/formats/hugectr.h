// HugeCTR's table directory: the file `key` with int64 keys and the file `emb_vector` with float32
// rows [rows, dim], both little-endian and without a header. dim follows from the sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "import/formats/table_reader.h"

namespace hps {

inline constexpr char kHugectrKeyFile[] = "key";
inline constexpr char kHugectrRowFile[] = "emb_vector";

// `dim` is required for an empty table and checked otherwise. Errors: those of opening the two
// files; INVALID_ARGUMENT (the file sizes do not fit together; names file, expected and found
// bytes).
absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrTable(const std::string& directory,
                                                              std::optional<uint32_t> dim);

}  // namespace hps
