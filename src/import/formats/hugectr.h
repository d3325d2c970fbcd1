// The table directory of HugeCTR: `key`, int64 little-endian each, and `emb_vector`, float32
// little-endian [rows, dim]. Neither has a header: dim follows from the sizes.
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

// `dim` is needed for an empty table, and confirmed otherwise.
// Errors: those of opening the two files; INVALID_ARGUMENT with file, expected and found bytes when
// the sizes are no table.
absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrTable(const std::string& directory,
                                                              std::optional<uint32_t> dim);

}  // namespace hps
