// The read path of level 3: sorted MultiGets in pieces, every row checked.
#pragma once

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l3_rocksdb/database.h"
#include "tier/fetch_batch.h"

namespace hps {

// See DurableTable::Fetch. Bound: RocksDB's own sorted MultiGet with the rows copied out.
absl::StatusOr<FetchCounts> FetchRows(const Database::Pin& pin, const FetchBatch& batch,
                                      Deadline deadline);

// Whether a lookup of `key` that found nothing must say "lost" instead of "absent".
bool InLostRange(const Family& family, Key key);

}  // namespace hps
