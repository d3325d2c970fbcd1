// Operations on the directory of a store while no database is open.
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

enum class StoreFiles {
  kNone,   // no directory, an empty directory, or a store that was never completed
  kStore,  // a store
};

// Errors: FAILED_PRECONDITION (the directory holds other files), PERMISSION_DENIED, DATA_LOSS (a
// store without its CURRENT).
absl::StatusOr<StoreFiles> FindStore(rocksdb::Env* env, const std::string& path);

// Translates RocksDB's status for opening the store at `path`. A missing file of the store is
// DATA_LOSS. Returns ok for an ok status.
absl::Status OpenError(const rocksdb::Status& status, const std::string& path);

// Creates `path` and its missing parents durably.
absl::Status MakeDirectories(rocksdb::Env* env, const std::string& path);

// Makes files created, renamed or removed in `path` durable.
absl::Status SyncDirectory(rocksdb::Env* env, const std::string& path);

// Removes a directory with all that it contains. Files that are missing, or that disappear during
// the call, are no error.
absl::Status RemoveTree(rocksdb::Env* env, const std::string& path);

// A missing file is no error.
absl::Status RemoveFile(rocksdb::Env* env, const std::string& path);

// Copies the first `size` bytes of a file, and syncs them. Errors: DATA_LOSS (the file is shorter),
// RESOURCE_EXHAUSTED, UNAVAILABLE; a part of the copy may stay.
absl::Status CopyFile(rocksdb::Env* env, const std::string& from, const std::string& to,
                      uint64_t size);

// Gives a file another name. Copies it where the file system has no hard links. Errors: those of
// CopyFile.
absl::Status LinkOrCopyFile(rocksdb::Env* env, const std::string& from, const std::string& to);

// Removes the temporary files of killed writers. RocksDB writes some files under a temporary name
// first and never removes the remains of its options files. Files that cannot be removed stay for
// the next call. REQUIRES: this process is the store's writer and has not opened the store yet.
absl::Status RemoveTemporaryFiles(rocksdb::Env* env, const std::string& path);

// Writes a file durably. It gets its final name only when it is complete.
absl::Status WriteFileDurably(rocksdb::Env* env, const std::string& path, std::string_view content);

}  // namespace hps
