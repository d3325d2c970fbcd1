// Reads the rows of a table in key order, as of one point in time.
#pragma once

#include <memory>

#include "l3_pages/merged_rows.h"
#include "l3_rocksdb/database.h"
#include "tier/durable_tier.h"

namespace hps {

// The cursor holds the pin until it is destroyed. It returns DATA_LOSS at damage, so a copy of the
// table never omits lost rows silently.
absl::StatusOr<std::unique_ptr<RowCursor>> MakeCursor(FamilyPin pin);

// The changes of a table, as of this call, which reads nothing. Errors of the cursor:
// DATA_LOSS, UNAVAILABLE.
std::unique_ptr<PageChangeCursor> MakeChangeCursor(FamilyPin pin);

}  // namespace hps
