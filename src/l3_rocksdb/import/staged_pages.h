// Checks page files of staged imports.
#pragma once

#include "absl/status/status.h"
#include "l3_rocksdb/import/staging.h"

namespace hps {

// Reads all of a staged page file, which may have been damaged since it was written. Errors:
// DATA_LOSS (the file is damaged or missing), UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::Status CheckStagedPages(const StagedImport& import, const StagedTable& table,
                              const StagedPageFile& file);

}  // namespace hps
