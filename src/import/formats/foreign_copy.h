// Copies tables of a cache to files without a name, so that an import can read them in any order,
// more than once, and as they were at one time (tier/foreign_cache.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "tier/foreign_cache.h"
#include "tier/foreign_store.h"

namespace hps {

struct ForeignCopyOptions {
  std::string what;  // names the cache in messages
  // Where the files are created. If it does not exist yet: in the nearest directory above it.
  std::string directory;
  ProgressFunction progress{};
};

// A store whose OpenTable copies the table when it is called for it first. Each copied table takes
// its size on the disk, until the store and its tables are destroyed; in memory a copy takes about
// 1 MiB. Errors: those of File::CreateNameless.
//
// Errors of OpenTable, besides those of ForeignStore: RESOURCE_EXHAUSTED (the disk is full),
// FAILED_PRECONDITION (a part is empty that can't be: the cache has lost it), those of
// ForeignCache.
absl::StatusOr<std::unique_ptr<ForeignStore>> CopyForeignCache(std::unique_ptr<ForeignCache> cache,
                                                               ForeignCopyOptions options);

}  // namespace hps
