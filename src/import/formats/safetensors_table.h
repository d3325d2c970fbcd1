// Tables in safetensors files. Either two tensors: `keys`, [n] I64, U64, I32 or U32, and `rows`,
// [n, dim] F32, F16 or BF16. Or one tensor [n, dim] whose row numbers are the keys.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "import/formats/table_reader.h"

namespace hps {

inline constexpr char kSafetensorsExtension[] = ".safetensors";

// If `tensor` is set, this tensor holds the rows, and the row numbers are the keys. Errors: those
// of opening the file; NOT_FOUND (no such tensor; lists the existing ones); INVALID_ARGUMENT with
// file, expected and found.
absl::StatusOr<std::unique_ptr<TableReader>> OpenSafetensorsTable(
    const std::string& path, const std::optional<std::string>& tensor);

}  // namespace hps
