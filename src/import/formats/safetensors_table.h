// Tables in safetensors files: tensors `keys`, [n] I64, U64, I32 or U32, and `rows`, [n, dim] F32,
// F16 or BF16; or one tensor [n, dim] whose row numbers are the keys.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "import/formats/table_reader.h"

namespace hps {

// With `tensor`, that tensor holds the rows and their numbers are the keys.
// Errors: those of opening the file; NOT_FOUND (no such tensor; names those there are);
// INVALID_ARGUMENT with file, expected and found.
absl::StatusOr<std::unique_ptr<TableReader>> OpenSafetensorsTable(
    const std::string& path, const std::optional<std::string>& tensor);

}  // namespace hps
