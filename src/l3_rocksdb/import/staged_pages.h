// Page files of staged imports: checks them, and takes them into the store.
#pragma once

#include "absl/status/status.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import/staging.h"

namespace hps {

// Reads all of a staged page file, which may have been damaged since it was written. Errors:
// DATA_LOSS (the file is damaged or missing), UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::Status CheckStagedPages(const StagedImport& import, const StagedTable& table,
                              const StagedPageFile& file);

// Links the page files of all tables into the store, and opens them. After an error, DropFamilies
// removes those that were linked. REQUIRES: contents.tables are those of the import. Errors: those
// of LinkPageFiles and OpenPages.
absl::Status TakePageFiles(Database& database, const StagedImport& import,
                           Database::NewContents& contents);

}  // namespace hps
