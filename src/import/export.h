// Exports a table of the durable tier to files: the inverse of an import.
#pragma once

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "tier/durable_tier.h"

namespace hps {

// Writes the rows in ascending key order, as of the time of the call, so the same table always
// gives the same bytes. After an error, removes what it has written. Errors: ALREADY_EXISTS
// (request.to holds a table), INVALID_ARGUMENT (a format that hps does not write),
// RESOURCE_EXHAUSTED, PERMISSION_DENIED, DATA_LOSS (a row of the store is damaged).
absl::StatusOr<ExportReport> RunExport(const DurableTable& table, const ExportRequest& request);

}  // namespace hps
