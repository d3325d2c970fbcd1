// A store: the directory with every row of one or more models, and the levels above it.
//
// Thread-safe. At most one process has a store open for writing; others open it read-only (a
// snapshot of the moment, refreshed by Reload). Sessions must be destroyed before their store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/lookup_session.h"
#include "hps/model_life_cycle.h"
#include "hps/statistics.h"
#include "hps/transfer.h"

namespace hps {

enum class OpenMode {
  kReadWrite,  // takes the store's lock
  kCreate,     // as kReadWrite; makes the store when the directory is missing or empty
  kServe,      // as kReadWrite, but no model is loaded before ModelLifeCycle::LoadAll or Load
  kReadOnly,   // beside a writer, without its lock; never changes a byte of the store
};

class Store {
 public:
  // Opens config.store.path, builds the levels of its models, commits imports that are staged and
  // ready (kReadWrite), preloads L2.
  // A model that can't be served does not keep the others from it; NewSession says why.
  // Errors: NOT_FOUND (no store there, or it lacks what the configuration names),
  // FAILED_PRECONDITION (made by a newer format), UNAVAILABLE (another process writes to it),
  // RESOURCE_EXHAUSTED (disk full), DATA_LOSS (damaged: what and where; no model can be served).
  static absl::StatusOr<std::unique_ptr<Store>> Open(const Config& config, OpenMode mode);

  virtual ~Store() = default;

  virtual absl::StatusOr<std::vector<TableInfo>> Tables() const = 0;

  // Of the files on disk; grows when an older hps can't read them any more.
  virtual uint32_t format_version() const = 0;

  // Errors: NOT_FOUND, which names the nearest model; UNAVAILABLE for one that is not loaded;
  // UNIMPLEMENTED / UNAVAILABLE for a device.
  virtual absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const std::string& model, const SessionOptions& options) = 0;

  // Commits staged imports (kReadWrite) or looks for what the writer has committed (kReadOnly),
  // and switches each changed model to its new tables, all of a model at once. Running calls end
  // on the old ones. Beside a writer, a table of which it has written rows in the same import is
  // served anew with them: its other levels begin empty, since they hold rows from before. Where
  // nothing was written it costs a look at the directory.
  // Errors: of the first model that could not switch; it keeps its old tables, and the others have
  // switched.
  virtual absl::Status Reload() = 0;

  // All or nothing; the model switches before it returns, whatever becomes of others. A table for
  // which nothing of the level's budget is left is served without it (statistics: bytes_max 0).
  // Errors: those of ImportTables (transfer), with file, expected and found; or, with the words "is
  // imported, but is not served yet", why the model keeps its old tables for now.
  virtual absl::StatusOr<ImportReport> Import(const ImportRequest& request) = 0;

  virtual absl::StatusOr<ExportReport> Export(const ExportRequest& request) = 0;

  // Commits staged imports first, as Reload: one from before must not bring the table back.
  // Errors: NOT_FOUND, which names the nearest table; as Import when the model can't switch.
  virtual absl::Status Drop(const std::string& table) = 0;

  // Waits until the promotions queued so far are done, at most `timeout`.
  // Errors: DEADLINE_EXCEEDED.
  virtual absl::Status DrainPromotions(std::chrono::nanoseconds timeout) = 0;

  virtual StoreStatistics Statistics() const = 0;

  // Loading, unloading and versions; lives as long as the store.
  virtual ModelLifeCycle& life_cycle() = 0;

  absl::Status LoadModel(const std::string& name) { return life_cycle().Load(name); }
  absl::Status UnloadModel(const std::string& name) {
    return life_cycle().Unload(name, std::chrono::seconds(30));
  }
  std::vector<ModelInfo> Models() { return life_cycle().List(); }
};

// Imports into a store that need not exist yet and that a server may have open: then the import is
// staged (ImportReport::staged). Errors: as Store::Import.
absl::StatusOr<ImportReport> ImportTables(const Config& config, const ImportRequest& request);

// The imports that wait for the owner of the store, in the order in which it will take them: those
// that can't be read come last. Changes nothing and takes no lock: one that is being taken may be
// among them. A store without any, and no store, have none.
// Errors: INVALID_ARGUMENT (the configuration); UNAVAILABLE, PERMISSION_DENIED (the directory).
absl::StatusOr<std::vector<WaitingImport>> WaitingImports(const Config& config);

// Removes a table from a store that nobody has open for writing.
// Errors: as Store::Drop and Store::Open.
absl::Status DropTable(const Config& config, const std::string& table);

// The row that an absent key of this table gets, as float32.
std::vector<float> DefaultRow(const TableSpec& spec);

// Reads every row and checksum of a store that nobody has open for writing. `repair` marks lost
// keys so that they are never answered `absent`, and takes the store's lock for it.
// Damage is a report, not an error. Errors: NOT_FOUND, UNAVAILABLE, FAILED_PRECONDITION.
absl::StatusOr<VerifyReport> VerifyStore(const Config& config, bool repair,
                                         const ProgressFunction& progress);

}  // namespace hps
