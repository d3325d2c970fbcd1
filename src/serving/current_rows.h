// Reads the rows that a table has now from level 2, and from level 3 what level 2 lacks. For
// filling and refreshing level 1; lookups have their own way (src/query).
#pragma once

#include "absl/status/status.h"
#include "base/clock.h"
#include "serving/live_table.h"
#include "tier/fetch_batch.h"

namespace hps {

// Fills in rows, outcomes and, unless empty, versions of `batch`. No outcome is kMiss afterwards.
// Allocates memory for the rows that level 2 lacks. Errors: those of DurableTable::Fetch.
absl::Status FetchCurrentRows(LiveTable& table, const FetchBatch& batch, Deadline deadline);

}  // namespace hps
