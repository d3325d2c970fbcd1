// The staging directories STORE/staging/<id>/ (docs/store_format.md, "Staging"). They hold imports
// in progress, and imports that wait until the store's owner commits them.
//
// A directory belongs to the command that holds the lock on its file `lock`. It is ready when it
// has the file `manifest`, which is written last. Then the store's owner commits the import and
// removes the directory. A directory that is neither locked nor ready is left over from a command
// that ended early.
#pragma once

#include <rocksdb/env.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/transfer.h"
#include "l3_pages/import/staged_import.h"
#include "l3_rocksdb/files/owner_lock.h"

namespace hps {

struct StagingDirectory {
  std::string path;
  FileLock lock;
};

// Creates a directory and locks it. Creates the store's directory if it is missing. Removes the
// directories of ended commands, so that imports that are killed repeatedly do not fill the disk.
// The directory belongs to the store's owner. Errors: those of GiveToStoreOwner, among others.
absl::StatusOr<StagingDirectory> MakeStagingDirectory(rocksdb::Env* env, const std::string& store);

// The last step of staging: gives the files to the owner of the store, who may commit the import
// afterwards. Sets `order`. After an error the import is not ready, unless `may_be_ready` is set:
// then the state is unknown, and the caller must leave the directory in place. Errors: those of
// TakeReadyImports and GiveToStoreOwner.
//
// Then removes older ready imports whose tables are all contained in newer ones with the same
// shape, unless the owner is committing. So repeated imports do not fill the disk while a server
// does not commit any. An import that cannot be removed is removed by the next import or by the
// owner's commit.
absl::Status MarkReady(rocksdb::Env* env, const std::string& store, StagedImport& import,
                       bool& may_be_ready);

struct TakenImports {
  std::vector<StagedImport> ready;  // oldest first
  size_t damaged_count = 0;         // imports removed because their manifest was damaged
  size_t stuck_count = 0;           // imports with a damaged manifest that could not be removed
  FileLock lock;                    // while held, no newer import removes one of `ready`
};

// For the store's owner: returns the imports that are ready. Logs and removes the directories of
// ended commands, and imports whose manifest is damaged, because these can never be committed.
// Errors, after which the order of the imports is unknown: FAILED_PRECONDITION (an import belongs
// to another user and may not be read, or was made by another version of hps; public), UNAVAILABLE,
// RESOURCE_EXHAUSTED (a read failed).
absl::StatusOr<TakenImports> TakeReadyImports(rocksdb::Env* env, const std::string& store);

// For processes that do not own the store; takes no lock. Returns what TakeReadyImports would
// return now, followed by the imports that it could not read. Changes nothing. Errors: UNAVAILABLE,
// FAILED_PRECONDITION (the directories can't be listed).
absl::StatusOr<std::vector<PendingImport>> ListReadyImports(rocksdb::Env* env,
                                                            const std::string& store);

// Removes a staging directory durably, its manifest first, so that a partly removed directory is
// not ready. Takes the staging lock. Errors: those of MarkReady; some or all of the directory may
// remain.
absl::Status RemoveStaging(rocksdb::Env* env, const std::string& store,
                           const std::string& directory);

// The name of a staged import for remote clients: "the staged import 'staging/ID'".
std::string StagedName(const std::string& directory);

// True if the store's owner would find no ready import in the directory now.
bool IsNotReady(rocksdb::Env* env, const std::string& directory);

// Removes a table and its files from a ready import; the import will switch its other tables only.
// Removes the import if it has no other table. Takes the staging lock. Errors: those of MarkReady;
// the table may still be in the import.
absl::Status RemoveStagedTable(rocksdb::Env* env, const std::string& store,
                               const std::string& table, StagedImport& import);

// The network that `import` has. Errors: DATA_LOSS (the file is missing, or has another digest),
// UNAVAILABLE.
absl::StatusOr<ModelNetwork> ReadStagedNetwork(rocksdb::Env* env, const StagedImport& import);

}  // namespace hps
