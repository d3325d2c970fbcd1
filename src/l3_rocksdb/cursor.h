// Rows of a table in order of keys, as of one moment.
#pragma once

#include <memory>

#include "l3_rocksdb/database.h"
#include "tier/durable_tier.h"

namespace hps {

// The cursor keeps the pin as long as it lives. Rows that a repair has marked lost, and ranges in
// which it could not tell the keys, are DATA_LOSS: whoever copies a table must not take them for
// absent.
std::unique_ptr<RowCursor> MakeCursor(Database::Pin pin);

}  // namespace hps
