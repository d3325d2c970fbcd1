#include "l3_rocksdb/import_commit.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/files/staging.h"
#include "l3_rocksdb/files/store_owner.h"
#include "l3_rocksdb/store_table.h"
#include "tier/table_payload.h"
#include "types/names.h"

namespace hps {
namespace {

absl::StatusOr<bool> AnyUsed(Database& database, const StagedImport& import) {
  for (const StagedTable& table : import.tables) {
    HPS_ASSIGN_OR_RETURN(const bool used, WasUsed(database.db(), table.incarnation));
    if (used) return true;
  }
  return false;
}

absl::Status CheckCommit(Database& database, const StagedImport& import) {
  const CatalogContents catalog = database.catalog().contents();
  HPS_RETURN_IF_ERROR(CheckShapes(catalog, import.specs()));
  HPS_ASSIGN_OR_RETURN(const bool used, AnyUsed(database, import));
  if (used) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", import.directory, "': this import was committed before"));
  }
  HPS_RETURN_IF_ERROR(CheckImportId(database, import.specs(), import.import_id));
  size_t table_count = catalog.tables.size();
  for (const StagedTable& table : import.tables)
    table_count += catalog.tables.contains(table.spec.name) ? 0 : 1;
  if (table_count > kTablesPerStoreMax) {
    return absl::ResourceExhaustedError(absl::StrCat("store '", database.path(), "': ", table_count,
                                                     " tables, expected at most ",
                                                     kTablesPerStoreMax));
  }
  return absl::OkStatus();
}

std::vector<TableRecord> RecordsOf(Database& database, const StagedImport& import) {
  const CatalogContents catalog = database.catalog().contents();
  uint64_t next_order = 1;
  for (const auto& [name, table] : catalog.tables)
    next_order = std::max(next_order, table.order + 1);
  std::vector<TableRecord> records;
  for (const StagedTable& table : import.tables) {
    std::vector<PageFileRecord> page_files;
    for (const StagedPageFile& file : table.files) page_files.push_back(file.record);
    const auto known = catalog.tables.find(table.spec.name);
    const uint64_t order = known != catalog.tables.end() ? known->second.order : next_order++;
    records.push_back({.spec = table.spec,
                       .incarnation = table.incarnation,
                       .row_count = table.row_count,
                       .order = order,
                       .update_start = import.update_start,
                       .import_id = import.import_id,
                       .page_files = std::move(page_files)});
  }
  return records;
}

// The staged files may have been damaged since they were written. Errors: DATA_LOSS, UNAVAILABLE.
absl::Status CheckFiles(const Database& database, const StagedImport& import) {
  for (const StagedTable& table : import.tables) {
    for (const StagedPageFile& file : table.files)
      HPS_RETURN_IF_ERROR(CheckStagedPages(import, table, file));
  }
  if (import.network.has_value()) return ReadStagedNetwork(database.env(), import).status();
  return absl::OkStatus();
}

// Links the page files of all tables into the store, and opens them. After an error,
// FamilyFiles::Drop removes those that were linked. REQUIRES: contents.tables are those of the
// import. Errors: those of LinkPageFiles and OpenPages.
absl::Status TakePageFiles(Database& database, const StagedImport& import, NewContents& contents) {
  for (size_t i = 0; i < import.tables.size(); ++i) {
    const StagedTable& table = import.tables[i];
    std::vector<std::string> files;
    for (const StagedPageFile& file : table.files)
      files.push_back(import.directory + "/" + file.name);
    if (!files.empty()) {
      HPS_RETURN_IF_ERROR(
          LinkPageFiles(database.env(), database.path(), contents.tables[i], files));
    }
    HPS_ASSIGN_OR_RETURN(auto pages, database.OpenPagesOf(contents.tables[i]));
    if (pages->table->is_impaired()) {
      return absl::UnavailableError(
          absl::StrCat("store '", database.path(), "': the page files of table '", table.spec.name,
                       "' can't be read, although they were just written; see the log"));
    }
    contents.pages.push_back(std::move(pages));
  }
  return absl::OkStatus();
}

// Makes the column families of what the import brings, and takes its files. After an error the
// caller drops the families that were made.
absl::Status WriteContents(Database& database, const StagedImport& import, NewContents& contents) {
  if (import.network.has_value()) {
    HPS_ASSIGN_OR_RETURN(const ModelNetwork network, ReadStagedNetwork(database.env(), import));
    HPS_RETURN_IF_ERROR(database.files().CreateNetwork(import.network->model, network, contents));
  }
  HPS_ASSIGN_OR_RETURN(contents.handles, database.files().Create(contents.tables));
  HPS_RETURN_IF_ERROR(TakePageFiles(database, import, contents));
  HPS_FAULT_POINT("l3.import.before_switch");
  return absl::OkStatus();
}

// All or nothing. Does not read the import's files: this process has just written them, and
// reading a large import again would take a third of its time. REQUIRES: the database's
// change_mutex() is held.
absl::Status CommitLocked(Database& database, const StagedImport& import,
                          const std::vector<Incarnation>& replaced) {
  HPS_RETURN_IF_ERROR(CheckCommit(database, import));
  HPS_RETURN_IF_ERROR(database.store().space().CheckRoomFor(0));
  HPS_FAULT_POINT("l3.import.before_families");
  NewContents contents{.tables = RecordsOf(database, import)};
  const absl::Status written = WriteContents(database, import, contents);
  if (!written.ok()) {
    database.files().Drop(contents.AllHandles());
    return written;
  }
  HPS_RETURN_IF_ERROR(database.SwitchTables(std::move(contents), replaced));
  HPS_FAULT_POINT("l3.import.after_switch");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TableInfo>> InfosOf(Database& database, const StagedImport& import) {
  std::vector<TableInfo> infos;
  for (const StagedTable& table : import.tables) {
    HPS_ASSIGN_OR_RETURN(const FamilyPin pin, database.catalog().PinTable(table.spec.name));
    infos.push_back(InfoOf(database, pin.family()));
  }
  return infos;
}

// Whether a network with these inputs reads the table.
bool IsRead(std::span<const NetworkInput> inputs, const std::string& table) {
  const std::string own = table.substr(table.find('/') + 1);
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const NetworkInput& input) { return input.table == own; });
}

// Whether its model's network reads the table.
bool IsReadByNetwork(const CatalogContents& catalog, const std::string& table) {
  const auto network = catalog.networks.find(ModelOf(table));
  return network != catalog.networks.end() && IsRead(network->second.inputs, table);
}

std::vector<std::string> TablesOfModel(const CatalogContents& catalog, const std::string& model) {
  std::vector<std::string> names;
  for (const auto& [name, table] : catalog.tables)
    if (ModelOf(name) == model) names.push_back(name);
  return names;
}

// Of a rejected import that could not be removed.
absl::Status Stuck(const std::string& name) {
  return Public(absl::FailedPreconditionError(absl::StrCat(
      name,
      " is corrupt or does not fit the store, and can't be removed; the log has the reason")));
}

// Commits staged imports in their order. REQUIRES: the database's change_mutex() is held.
class ReadyImports {
 public:
  explicit ReadyImports(Database& database) : database_(database) {}

  // Commits or rejects each ready import. Keeps those that cannot be committed now in waiting_.
  // Errors: those of TakeReadyImports; errors of single imports are in result().
  absl::Status Commit();

  // Checks that a newer import may switch. Errors: UNAVAILABLE (see CommitNewest).
  absl::Status CheckNoConflict(const StagedImport& newer) const;
  // Incarnations of the waiting imports that `newer` replaces. These imports still exist when
  // `newer` has switched, even if the process ends right then, and must not switch afterwards.
  std::vector<Incarnation> IncarnationsReplacedBy(const StagedImport& newer) const;
  // Call this after the switch of `newer`: removes the waiting imports that it replaces, and
  // forgets the rejected imports of its tables.
  void RemoveReplacedBy(const StagedImport& newer);
  // The tables of the waiting imports.
  std::set<std::string> WaitingTables() const;
  // True if the network of a waiting import reads the table.
  bool IsReadByNetwork(const std::string& table) const;
  // Removes a dropped table from the waiting imports. Errors: those of RemoveStagedTable.
  absl::Status RemoveTable(const std::string& table);

  RefreshResult result() const;

 private:
  struct Waiting {
    StagedImport import;
    absl::Status why;
  };

  absl::Status CommitOne(const StagedImport& import, bool& is_rejected);
  absl::Status CheckImport(const StagedImport& import, bool& is_rejected) const;
  void Reject(std::span<const StagedImport> older, const StagedImport& import,
              const absl::Status& why);
  void Remove(const StagedImport& import) const;

  Database& database_;
  FileLock lock_;  // TakenImports::lock
  std::vector<Waiting> waiting_;
  std::vector<Waiting> stuck_;    // rejected, but not removed yet
  absl::Status stuck_manifests_;  // an error if there are damaged manifests, likewise
  bool changed_ = false;
};

absl::Status ReadyImports::Commit() {
  database_.files().RetryDrops();
  HPS_ASSIGN_OR_RETURN(TakenImports taken, TakeReadyImports(database_.env(), database_.path()));
  lock_ = std::move(taken.lock);
  const absl::Status damaged = absl::DataLossError("the manifest of a staged import is damaged");
  if (taken.damaged_count > 0) database_.rejected_imports().AddUnknown(damaged);
  if (taken.stuck_count > 0) stuck_manifests_ = Stuck("a staged import of this or another model");
  for (size_t i = 0; i < taken.ready.size(); ++i) {
    const StagedImport& import = taken.ready[i];
    bool is_rejected = false;
    const absl::Status committed = CommitOne(import, is_rejected);
    if (is_rejected) {
      Reject(std::span(taken.ready).first(i), import, committed);
      continue;
    }
    if (committed.ok()) {
      Remove(import);
      continue;
    }
    LogError(absl::StrCat("a staged import can't be committed now: ", committed.ToString()));
    waiting_.push_back({import, committed});
  }
  return absl::OkStatus();
}

absl::Status ReadyImports::CommitOne(const StagedImport& import, bool& is_rejected) {
  // Otherwise its files would stay when it is committed, or the load that commits it says nothing.
  HPS_RETURN_IF_ERROR(CheckMayTake(import.directory, StagedName(import.directory)));
  HPS_ASSIGN_OR_RETURN(const bool committed_before, AnyUsed(database_, import));
  if (!committed_before) {
    HPS_RETURN_IF_ERROR(CheckNoConflict(import));
    HPS_RETURN_IF_ERROR(CheckImport(import, is_rejected));
    HPS_RETURN_IF_ERROR(CommitLocked(database_, import, IncarnationsReplacedBy(import)));
    changed_ = true;
  }
  RemoveReplacedBy(import);
  return absl::OkStatus();
}

// Sets `is_rejected` if the import can never be committed, whatever the state of the store. Errors
// of the store do not set it, not even damage: the import may then be the only intact copy.
absl::Status ReadyImports::CheckImport(const StagedImport& import, bool& is_rejected) const {
  absl::Status fits = CheckShapes(database_.catalog().contents(), import.specs());
  if (fits.ok()) fits = CheckImportId(database_, import.specs(), import.import_id);
  is_rejected = absl::IsFailedPrecondition(fits);
  HPS_RETURN_IF_ERROR(fits);
  // Checks the space before it reads the files of the import.
  HPS_RETURN_IF_ERROR(CheckCommit(database_, import));
  HPS_RETURN_IF_ERROR(database_.store().space().CheckRoomFor(0));
  const absl::Status whole = CheckFiles(database_, import);
  is_rejected = absl::IsDataLoss(whole);
  return whole;
}

// `older`: the imports that became ready before this one.
void ReadyImports::Reject(std::span<const StagedImport> older, const StagedImport& import,
                          const absl::Status& why) {
  LogError(absl::StrCat("discarding a staged import: ",
                        why.ToString(absl::StatusToStringMode::kWithNoExtraData)));
  Remove(import);
  // If the removal failed, the next commit finds the import and rejects it again.
  if (!IsNotReady(database_.env(), import.directory)) {
    stuck_.push_back({import, Stuck(StagedName(import.directory))});
    return;
  }
  for (const std::string& table : TablesOf(import)) {
    std::set<Incarnation> before;
    for (const StagedImport& other : older) {
      for (const StagedTable& staged : other.tables)
        if (staged.spec.name == table) before.insert(staged.incarnation);
    }
    database_.rejected_imports().Add(table, why, std::move(before));
  }
}

absl::Status ReadyImports::CheckNoConflict(const StagedImport& newer) const {
  const std::set<std::string> names = TablesOf(newer);
  for (const auto& [older, why] : waiting_) {
    const auto is_shared = [&](const StagedTable& table) {
      return names.contains(table.spec.name);
    };
    const auto shared = std::find_if(older.tables.begin(), older.tables.end(), is_shared);
    if (shared == older.tables.end() || IsReplacedBy(older, names)) continue;
    return absl::UnavailableError(absl::StrCat(
        "store '", database_.path(), "': an older import of table '", shared->spec.name,
        "' and others is staged and can't be committed now: ", why.message()));
  }
  return absl::OkStatus();
}

std::vector<Incarnation> ReadyImports::IncarnationsReplacedBy(const StagedImport& newer) const {
  const std::set<std::string> names = TablesOf(newer);
  std::vector<Incarnation> incarnations;
  for (const auto& [older, why] : waiting_) {
    if (!IsReplacedBy(older, names)) continue;
    for (const StagedTable& table : older.tables) incarnations.push_back(table.incarnation);
  }
  return incarnations;
}

void ReadyImports::RemoveReplacedBy(const StagedImport& newer) {
  const std::set<std::string> names = TablesOf(newer);
  for (std::vector<Waiting>* imports : {&waiting_, &stuck_}) {
    std::erase_if(*imports, [&](const Waiting& older) {
      if (!IsReplacedBy(older.import, names)) return false;
      Remove(older.import);
      return true;
    });
  }
  for (const StagedTable& table : newer.tables)
    database_.rejected_imports().Replace(table.spec.name, table.incarnation);
}

std::set<std::string> ReadyImports::WaitingTables() const {
  std::set<std::string> names;
  for (const auto& [import, why] : waiting_)
    for (const StagedTable& table : import.tables) names.insert(table.spec.name);
  return names;
}

bool ReadyImports::IsReadByNetwork(const std::string& table) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    const StagedImport& import = waiting.import;
    return import.network.has_value() && import.tables.size() > 1 &&
           TablesOf(import).contains(table) && IsRead(import.network->inputs, table);
  });
}

absl::Status ReadyImports::RemoveTable(const std::string& table) {
  for (auto& [import, why] : waiting_) {
    if (!TablesOf(import).contains(table)) continue;
    const absl::Status taken = RemoveStagedTable(database_.env(), database_.path(), table, import);
    if (taken.ok()) continue;
    return absl::Status(taken.code(),
                        absl::StrCat("store '", database_.path(), "': table '", table,
                                     "' is dropped, but a staged import still contains it: ",
                                     taken.message(), "; drop it again"));
  }
  return absl::OkStatus();
}

// NOT_FOUND for a table or model that the store does not have.
absl::Status NoSuchName(Database& database, const std::string& name) {
  if (name.find('/') != std::string::npos) return database.catalog().PinTable(name).status();
  std::vector<std::string> models;
  const CatalogContents catalog = database.catalog().contents();
  for (const auto& [table, record] : catalog.tables) models.push_back(ModelOf(table));
  return absl::NotFoundError(absl::StrCat("store '", database.path(), "' has no model '", name, "'",
                                          NearestNameHint(name, models)));
}

RefreshResult ReadyImports::result() const {
  RefreshResult result{.changed = changed_};
  for (const std::vector<Waiting>* imports : {&waiting_, &stuck_})
    for (const auto& [import, why] : *imports) result.waiting.push_back({TablesOf(import), why});
  if (!stuck_manifests_.ok()) result.waiting.push_back({{}, stuck_manifests_});
  return result;
}

void ReadyImports::Remove(const StagedImport& import) const {
  const absl::Status removed = RemoveStaging(database_.env(), database_.path(), import.directory);
  if (!removed.ok())
    LogWarning(absl::StrCat("a staging directory was not removed: ", removed.ToString()));
}

}  // namespace

absl::Status CheckShapes(const CatalogContents& catalog, std::span<const TableSpec> specs) {
  for (const TableSpec& spec : specs) {
    const auto known = catalog.tables.find(spec.name);
    if (known == catalog.tables.end()) continue;
    const TableSpec& has = known->second.spec;
    if (has.dim == spec.dim && has.dtype == spec.dtype) continue;
    const std::string model = ModelOf(spec.name);
    return WithTable(absl::FailedPreconditionError(absl::StrCat(
                         "table '", spec.name, "' exists with dim ", has.dim, " and dtype ",
                         std::string(DtypeName(has.dtype)), "; the import has dim ", spec.dim,
                         " and dtype ", std::string(DtypeName(spec.dtype)),
                         IsReadByNetwork(catalog, spec.name)
                             ? absl::StrCat(", and the dense network of model '", model,
                                            "' reads it: drop the model first")
                             : std::string(": drop the table first"))),
                     spec.name);
  }
  return absl::OkStatus();
}

absl::Status CheckImportId(Database& database, std::span<const TableSpec> specs,
                           const std::string& import_id) {
  if (import_id.empty()) return absl::OkStatus();
  for (const TableSpec& spec : specs) {
    HPS_ASSIGN_OR_RETURN(const bool used,
                         WasUsed(database.db(), ImportIdNumber(spec.name, import_id)));
    if (!used) continue;
    return WithTable(absl::FailedPreconditionError(absl::StrCat(
                         "table '", spec.name, "' had the import id '", import_id,
                         "' before in this store: give each version of its rows another id")),
                     spec.name);
  }
  return absl::OkStatus();
}

absl::StatusOr<RefreshResult> CommitReadyImports(Database& database) {
  MutexLock lock(database.change_mutex());
  ReadyImports ready(database);
  HPS_RETURN_IF_ERROR(ready.Commit());
  return ready.result();
}

absl::StatusOr<std::vector<TableInfo>> CommitNewest(Database& database,
                                                    const StagedImport& import) {
  MutexLock lock(database.change_mutex());
  ReadyImports ready(database);
  HPS_RETURN_IF_ERROR(ready.Commit());
  HPS_RETURN_IF_ERROR(ready.CheckNoConflict(import));
  HPS_RETURN_IF_ERROR(CommitLocked(database, import, ready.IncarnationsReplacedBy(import)));
  ready.RemoveReplacedBy(import);
  return InfosOf(database, import);
}

absl::Status DropAfterStaged(Database& database, const std::string& name) {
  MutexLock lock(database.change_mutex());
  ReadyImports ready(database);
  HPS_RETURN_IF_ERROR(ready.Commit());
  const CatalogContents catalog = database.catalog().contents();
  const bool is_model = name.find('/') == std::string::npos;
  const std::string model = is_model ? name : ModelOf(name);
  std::vector<std::string> current = TablesOfModel(catalog, model);
  // The last table of a model is the model.
  const bool is_read = current.size() > 1 && IsReadByNetwork(catalog, name);
  if (!is_model && (is_read || ready.IsReadByNetwork(name))) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", name, "' is read by the dense network of model '", model,
                     "': drop the whole model, or import it with a network that does not read "
                     "the table"));
  }
  // A table that is only staged can be dropped too.
  std::set<std::string> staged = ready.WaitingTables();
  std::erase_if(staged, [&](const std::string& table) {
    return is_model ? ModelOf(table) != name : table != name;
  });
  if (!is_model) std::erase_if(current, [&](const std::string& table) { return table != name; });
  // Also gives RemoveTable space to write.
  const SpaceReserve::Loan room = database.store().reserve().Lend();
  if (!current.empty()) {
    HPS_RETURN_IF_ERROR(database.DropTables(current));
  } else if (staged.empty()) {
    HPS_RETURN_IF_ERROR(NoSuchName(database, name));
  }
  std::set<std::string> all = staged;
  all.insert(current.begin(), current.end());
  for (const std::string& table : all) {
    database.rejected_imports().Forget(table);
    HPS_RETURN_IF_ERROR(ready.RemoveTable(table));
  }
  return absl::OkStatus();
}

}  // namespace hps
