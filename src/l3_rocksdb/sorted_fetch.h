// The read path of level 3: sorted MultiGets of a few keys at a time. Checks every row.
#pragma once

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l3_rocksdb/database.h"
#include "tier/fetch_batch.h"

namespace hps {

// See DurableTable::Fetch. Bound: RocksDB's sorted MultiGet plus copying the rows.
absl::StatusOr<FetchCounts> FetchRows(const Database::Pin& pin, const FetchBatch& batch,
                                      Deadline deadline);

// True if `key`, for which RocksDB has no record, is lost instead of absent.
bool InLostRange(const Family& family, Key key);

}  // namespace hps
