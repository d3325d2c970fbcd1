// The staging directories STORE/staging/<id>/ (docs/store_format.md, "Staging"). They hold imports
// in progress, and imports that wait until the store's owner commits them.
//
// A directory belongs to the command that holds the lock on its file `lock`. It is ready when it
// has the file `manifest`, which is written last. Then the store's owner commits the import and
// removes the directory. A directory that is neither locked nor ready is left over from a command
// that ended early.
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "hps/types.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/files/owner_lock.h"

namespace hps {

struct StagedFile {
  std::string name;  // in the staging directory
  std::string checksum;
  std::string first_key;  // in RocksDB's format
  std::string last_key;
};

// A page file in the staging directory. It has rows.
struct StagedPageFile {
  std::string name;
  PageFileRecord record;
};

struct StagedTable {
  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;
  std::vector<StagedFile> row_files;  // ascending, disjoint key ranges
  std::vector<StagedFile> key_files;
  bool in_page_files = false;
  std::vector<StagedPageFile> page_files{};  // likewise; then there are no others
};

// The dense network of an import; its bytes are the file kStagedNetworkName of the directory.
struct StagedNetwork {
  std::string model;
  std::string digest;
  std::vector<NetworkInput> inputs;
};
inline constexpr char kStagedNetworkName[] = "network";

struct StagedImport {
  std::string directory;
  uint64_t order = 0;  // the order in which staged imports became ready
  UpdateStart update_start{};
  std::string import_id{};  // of all tables; may be empty
  // A repair: the tables are copies, with the import id and the stream of the current ones.
  bool is_copy = false;
  std::vector<StagedTable> tables;
  std::optional<StagedNetwork> network{};
};

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

// Suffix of the link to a staged file that a commit creates.
inline constexpr char kLinkSuffix[] = ".in";

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

// Whether all tables and the network of `import` are among `names`, as TablesOf gives them.
bool IsReplacedBy(const StagedImport& import, const std::set<std::string>& names);
// The names of the tables, and for a network "MODEL/", which is no table's.
std::set<std::string> TablesOf(const StagedImport& import);

// Converts an import to the bytes of its manifest and back. Errors: DATA_LOSS.
std::string EncodeStagedImport(const StagedImport& import);
absl::StatusOr<StagedImport> DecodeStagedImport(std::string_view bytes);

}  // namespace hps
