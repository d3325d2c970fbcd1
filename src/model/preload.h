// Fills a table's level 2 before it is served (the paper's initial cache rate).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "query/served_table.h"

namespace hps {

// Inserts the first `share` of the table's rows in key order, or as many as fit: it ends when the
// level begins to evict. A promotion like any other, so the fence holds. Returns the rows inserted.
// Errors: DATA_LOSS (a damaged row; what came before it stays), those of LossyTable::Insert.
absl::StatusOr<uint64_t> PreloadTable(ServedTable& table, double share);

}  // namespace hps
