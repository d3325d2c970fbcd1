// The row that lookups return for a key that an imported table does not have.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"

namespace hps {

// The default row that `request` defines for the table `spec`, converted to its dtype; empty means
// zeros. Reads the request's default_file if it has one; else every element is its default_value.
//
// Errors: INVALID_ARGUMENT (a finite element exceeds the range of the dtype), those of ReadNpyRow.
absl::StatusOr<std::vector<std::byte>> RequestedDefaultRow(const ImportRequest& request,
                                                           const TableSpec& spec);

}  // namespace hps
