// A store: the directory that holds every row of one or more models (level 3), and the caches
// above it: level 2 in host memory, level 1 on GPUs.
//
//   absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(config, OpenMode::kReadWrite);
//   auto session = (*store)->NewSession("dlrm", {});
//
// At most one process has a store open for writing. Others may open it read-only; they see what was
// committed when they opened it, or at their last ModelManager::LoadAll.
//
// Sessions and LoadedModel handles share the store's resources (files, locks, caches, threads), so
// they stay valid if the Store is destroyed first. The resources, including the lock of a writer,
// are released when the Store and all sessions and handles have been destroyed.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/lookup_session.h"
#include "hps/model_manager.h"
#include "hps/statistics.h"
#include "hps/transfer.h"
#include "hps/update.h"

namespace hps {

enum class OpenMode {
  kReadWrite,  // takes the store's lock and loads all models
  kCreate,     // as kReadWrite; creates the store if the directory is missing or empty
  kServe,      // as kReadWrite, but loads no model: call models().LoadAll() or Load(). On a file
               // system that is mounted read-only as kReadOnly, unless the configuration has
               // changes of rows: PERMISSION_DENIED
  kMaintain,   // as kReadWrite for a command: loads no model, reads no update stream; others wait
  kReadOnly,   // beside a writer, without its lock; never changes the store
};

class Store {
 public:
  // Opens config.store.path and, unless read-only, commits staged imports. In modes other than
  // kServe and kMaintain, also loads the models and preloads level 2. If a model cannot be loaded,
  // NewSession returns its error; Open fails only if no model could be loaded. Errors: NOT_FOUND
  // (no store there, or a configured model or table is not in it), FAILED_PRECONDITION (the store
  // was written by a newer version), UNAVAILABLE (another process has it open for writing),
  // RESOURCE_EXHAUSTED (disk full), DATA_LOSS (corrupt; the message names the file).
  static absl::StatusOr<std::unique_ptr<Store>> Open(const Config& config, OpenMode mode);

  virtual ~Store() = default;

  // All tables of the store, loaded or not, in the order of their first import. Reads no rows.
  // Errors: DATA_LOSS, UNAVAILABLE (the catalog cannot be read).
  virtual absl::StatusOr<std::vector<TableInfo>> Tables() const = 0;

  // Version of the file format on disk. A version of hps opens stores of one format only.
  static uint32_t format_version();

  // A session that follows the model: each lookup answers from the version that is loaded then.
  // Errors: NOT_FOUND, with the nearest model name; UNAVAILABLE (the model is not loaded, or the
  // device is not available), UNIMPLEMENTED (a device in a build without GPU support),
  // INVALID_ARGUMENT (options), RESOURCE_EXHAUSTED (no memory).
  virtual absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const std::string& model, const SessionOptions& options) = 0;

  // Imports all tables of the request or none, and switches their model before it returns.
  // A table for which the budget of a level has no room is served without that level; its
  // `bytes_max` in the statistics is 0.
  // Errors: INVALID_ARGUMENT, NOT_FOUND, DATA_LOSS and others for the source files, with file,
  // expected and found. If the message says "is imported, but is not served yet", the import was
  // committed, and the model, or a PredictionModel of it, keeps its current version for the reason
  // given.
  virtual absl::StatusOr<ImportReport> Import(const ImportRequest& request) = 0;

  // Writes a table's rows as of this call, in ascending order of keys, while the store serves. A
  // model is written with its network. Files appear when they are complete.
  // Errors: NOT_FOUND, with the nearest name; ALREADY_EXISTS (the directory holds a table),
  // DATA_LOSS (a damaged row), RESOURCE_EXHAUSTED (disk full), those of the sink. Nothing is left
  // in the directory then.
  virtual absl::StatusOr<ExportReport> Export(const ExportRequest& request) = 0;

  // Removes a table (MODEL/TABLE), or all tables of a model (MODEL) with its network, and switches
  // the model. Commits staged imports first, so that an older one cannot bring a table back.
  // Errors: NOT_FOUND, with the nearest name; FAILED_PRECONDITION (the model's network reads the
  // table: drop the model); as Import if the model cannot switch.
  virtual absl::Status Drop(const std::string& name) = 0;

  // Changes rows of a table now, as one atomic write. When it returns, the change is on the disk,
  // whatever the sync mode of the store, and every lookup that begins later sees it. Callers that
  // wait at the same time share one sync. The table need not be loaded.
  // Errors: NOT_FOUND (no such table), INVALID_ARGUMENT (dim, dtype or size of the rows; more than
  // kUpdateBytesMax), FAILED_PRECONDITION (the store is open read-only, or the table takes its
  // changes from an update stream or has an import id), UNAVAILABLE (within `timeout` no change
  // could begin, because the model is being loaded or the disk fails), RESOURCE_EXHAUSTED (disk
  // full). After an error of the disk the change may be visible until the process ends: apply it
  // again.
  virtual absl::Status Apply(const TableUpdate& update, std::chrono::nanoseconds timeout) = 0;

  // Makes a consistent copy in STORE/snapshots/`name`, by hard links or, where the file system has
  // none, by copies, while the store serves and is changed. The copy is a store; its stream
  // positions agree with its rows. It has every change that was applied before, and some of those
  // made meanwhile, in their order. Returns the bytes of its files. Nothing is left after an error.
  // Errors: INVALID_ARGUMENT (the name), ALREADY_EXISTS, FAILED_PRECONDITION (another snapshot is
  // being made, or the store is open read-only), RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the
  // disk fails).
  virtual absl::StatusOr<uint64_t> Snapshot(const std::string& name) = 0;

  // Waits until the background insertions (promotions) queued so far are done.
  // Errors: DEADLINE_EXCEEDED after `timeout`.
  virtual absl::Status DrainPromotions(std::chrono::nanoseconds timeout) = 0;

  virtual StoreStatistics Statistics() const = 0;

  // Loading, unloading and pinning of models. The reference is valid while the Store lives.
  virtual ModelManager& models() = 0;
};

// Imports into a store that may not exist yet or may be open in another process. In the latter case
// the import is staged, and the other process commits it at its next load (ImportReport::staged).
// Errors: as Store::Import.
absl::StatusOr<ImportReport> ImportTables(const Config& config, const ImportRequest& request);

// Staged imports that the writer of the store has not committed yet, in commit order; unreadable
// ones last. Read-only and lock-free, so an import that is just being committed may be listed.
// Empty if there is no store.
// Errors: INVALID_ARGUMENT (configuration); UNAVAILABLE, PERMISSION_DENIED (directory).
absl::StatusOr<std::vector<PendingImport>> PendingImports(const Config& config);

// Whether a server has the store open for writing. Errors: PERMISSION_DENIED, UNAVAILABLE (its lock
// can't be read).
absl::StatusOr<bool> ServerHasStore(const Config& config);

// Removes a table or a model from a store that no process has open for writing.
// Errors: as Store::Drop and Store::Open.
absl::Status DropTable(const Config& config, const std::string& name);

// The row returned for a key that the table does not have, as [dim] float32.
std::vector<float> DefaultRow(const TableSpec& spec);

// Reads every row and checksum of a store that no process has open for writing. Lookups return
// kDefaultDegraded for damaged rows, never kAbsent. `repair` takes the store's lock and mends what
// can be mended without the rows: it removes damaged networks (docs/command_line.md, "hps verify").
// Damage is part of the report, not an error. Errors: NOT_FOUND, UNAVAILABLE, FAILED_PRECONDITION.
absl::StatusOr<VerifyReport> VerifyStore(const Config& config, bool repair,
                                         const ProgressFunction& progress);

}  // namespace hps
