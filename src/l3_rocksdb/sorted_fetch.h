// The read path of level 3: page files, and sorted MultiGets of a few keys at a time for keys that
// have changed. Checks every row.
#pragma once

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l3_rocksdb/database.h"
#include "tier/fetch_batch.h"

namespace hps {

// See DurableTable::Fetch. Bound: RocksDB's sorted MultiGet plus copying the rows.
absl::StatusOr<FetchCounts> FetchRows(const FamilyPin& pin, const FetchBatch& batch,
                                      Deadline deadline);

}  // namespace hps
