// Where a table begins to read its update stream, as text: what `hps import --stream-from`, the
// Python package and the C interface take.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"

namespace hps {

// "import" (nullopt: the time when the import begins), "earliest", "latest", or a time as in
// "2026-11-24T18:00:00Z". Errors: INVALID_ARGUMENT, which quotes the text.
absl::StatusOr<std::optional<UpdateStart>> ParseUpdateStart(std::string_view text);

// "earliest", "latest" or a time in UTC with milliseconds, which ParseUpdateStart reads back.
std::string FormatUpdateStart(const UpdateStart& start);

}  // namespace hps
