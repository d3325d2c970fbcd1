// The database of HugeCTR that an import reads instead of files: a RocksDB directory or Redis.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "tier/foreign_store.h"

namespace hps {

// Opens the database that `request` names by its format or, if it names no format, by a Redis URL
// or a directory that holds a RocksDB database. Returns null for files and for rows in memory.
//
// Errors: INVALID_ARGUMENT (a URL with a password, which the message does not repeat; partitions
// for anything but Redis; a database, but `opener` is null); those of `opener`.
absl::StatusOr<std::shared_ptr<ForeignStore>> OpenForeignDatabase(const ImportRequest& request,
                                                                  const ForeignStoreOpener& opener);

}  // namespace hps
