// The store's directory as the file system shows it, before any database is open.
#pragma once

#include <rocksdb/env.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

enum class StoreFiles {
  kNone,   // no directory, an empty one, or one in which no store was completed
  kStore,  // a store
};

// Errors: FAILED_PRECONDITION (something else lies there), PERMISSION_DENIED, DATA_LOSS (a store
// without its CURRENT).
absl::StatusOr<StoreFiles> FindStore(rocksdb::Env* env, const std::string& path);

// What RocksDB says when it opens the store at `path`, as ours: a file of a store that can't be
// found is damage. Ok for an ok status.
absl::Status OpenError(const rocksdb::Status& status, const std::string& path);

// Makes `path` and its missing parents, durably.
absl::Status MakeDirectories(rocksdb::Env* env, const std::string& path);

// Makes what was created, renamed or removed in `path` durable.
absl::Status SyncDirectory(rocksdb::Env* env, const std::string& path);

// Removes a directory with the files and directories in it; what is missing, also what goes
// meanwhile, is fine.
absl::Status RemoveTree(rocksdb::Env* env, const std::string& path);

// A missing file is fine.
absl::Status RemoveFile(rocksdb::Env* env, const std::string& path);

// Removes what writers that were killed have left of files that RocksDB writes under another name
// first: it keeps those of its options for ever. What can't be removed stays for the next time.
// REQUIRES: this process is the store's writer and has not opened it yet.
absl::Status RemoveTemporaryFiles(rocksdb::Env* env, const std::string& path);

// Writes a file of this content durably and under its final name only when it is complete.
absl::Status WriteFileDurably(rocksdb::Env* env, const std::string& path, std::string_view content);

}  // namespace hps
