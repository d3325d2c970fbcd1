// Moves the table files of a staged import into the column families of its tables.
#pragma once

#include <rocksdb/db.h>

#include <vector>

#include "absl/status/status.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import/staging.h"

namespace hps {

// Ingests the row files of each table into the family of `handles` at its index, and its key lists.
// The staging directory keeps the files. REQUIRES: the files were checked. Errors: those of
// Database::Ingest, UNAVAILABLE (RocksDB took another range of keys than was written).
absl::Status IngestTableFiles(Database& database, const StagedImport& import,
                              const std::vector<rocksdb::ColumnFamilyHandle*>& handles);

}  // namespace hps
