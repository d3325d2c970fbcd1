// Imports in the making, and imports that wait for the store's owner: STORE/staging/<id>/
// (docs/store_format.md, "Staging").
//
// A directory belongs to the command that holds the lock on its file `lock`. It is ready when it
// has a `manifest`, which is written last; then the store's owner commits and removes it. One that
// is neither locked nor ready is the remains of a command that ended early.
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "hps/types.h"
#include "l3_rocksdb/files/owner_lock.h"

namespace hps {

struct StagedFile {
  std::string name;  // in the staging directory
  std::string checksum;
  std::string first_key;  // as RocksDB has it
  std::string last_key;
};

struct StagedTable {
  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;
  std::vector<StagedFile> row_files;  // ascending, disjoint ranges of keys
  std::vector<StagedFile> key_files;
};

struct StagedImport {
  std::string directory;
  uint64_t order = 0;  // in which staged imports became ready
  std::vector<StagedTable> tables;
};

struct StagingDirectory {
  std::string path;
  FileLock lock;
};

// A new directory, locked. Makes the store's directory when it is missing, and removes what ended
// commands have left: imports that are killed again and again must not fill the disk.
absl::StatusOr<StagingDirectory> MakeStagingDirectory(rocksdb::Env* env, const std::string& store);

// The last step: from here on the owner of the store may take the import. Sets `order`. After an
// error the import is not ready, unless that can't be had any more: `may_be_ready` says so, and the
// directory must be left then. Errors: UNAVAILABLE, RESOURCE_EXHAUSTED.
// Then removes older imports that are ready and whose tables are all in newer ones, of the same
// shape, unless the owner is committing: imports beside a server that loads none of them must not
// fill the disk. One that can't be removed goes with the next import, or when the owner commits.
absl::Status MarkReady(rocksdb::Env* env, const std::string& store, StagedImport& import,
                       bool& may_be_ready);

struct TakenImports {
  std::vector<StagedImport> ready;  // oldest first
  size_t damaged_count = 0;         // of those that have gone because their manifest was damaged
  FileLock lock;                    // while it is held, no newer import removes one of `ready`
};

// For the store's owner: the imports that are ready. Removes what ended commands have left, and
// imports whose manifest is damaged, which can never be committed; both are logged. One made by
// another version of hps is left alone.
// Errors: UNAVAILABLE, RESOURCE_EXHAUSTED: something can't be read now, and what the order of the
// imports is can't be told.
absl::StatusOr<TakenImports> TakeReadyImports(rocksdb::Env* env, const std::string& store);

// For those who do not own the store, without a lock: what TakeReadyImports would give now, and
// after it the imports that it could not read. Changes nothing.
// Errors: UNAVAILABLE, PERMISSION_DENIED: the directories can't be listed.
absl::StatusOr<std::vector<PendingImport>> ListReadyImports(rocksdb::Env* env,
                                                            const std::string& store);

// The name of a staged file while a commit has a link to it.
inline constexpr char kLinkSuffix[] = ".in";

// Removes a staging directory, the manifest first, durably: what is left of a directory that is
// half removed is not ready. Takes the staging lock. Errors: as MarkReady; the directory may be
// there still, or half of it.
absl::Status RemoveStaging(rocksdb::Env* env, const std::string& store,
                           const std::string& directory);

// Whether the owner of the store would find no import in the directory, if it looked again.
bool IsNotReady(rocksdb::Env* env, const std::string& directory);

// Takes a table out of an import that is ready, with its files: the others will switch without it.
// An import of this table alone is removed. Takes the staging lock.
// Errors: as MarkReady; the table may be in the import still.
absl::Status TakeOutTable(rocksdb::Env* env, const std::string& store, const std::string& table,
                          StagedImport& import);

// The manifest's bytes, and back. Errors: DATA_LOSS.
std::string EncodeStagedImport(const StagedImport& import);
absl::StatusOr<StagedImport> DecodeStagedImport(std::string_view bytes);

}  // namespace hps
