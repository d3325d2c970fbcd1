// Writes a table of the durable tier to files: the inverse of import.
#pragma once

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "tier/durable_tier.h"

namespace hps {

// Rows in ascending order of keys, as of the moment of the call, so that the same table always
// gives the same bytes. What was written is removed after an error.
// Errors: ALREADY_EXISTS (request.to holds a table), INVALID_ARGUMENT (a format that is not
// written), RESOURCE_EXHAUSTED, PERMISSION_DENIED, DATA_LOSS (a row of the store is damaged).
absl::StatusOr<ExportReport> RunExport(const DurableTable& table, const ExportRequest& request);

}  // namespace hps
