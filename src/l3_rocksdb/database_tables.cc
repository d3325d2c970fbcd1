// Changes of the set of tables: creates column families, makes them current by a switch or a drop,
// and drops those that have no reader left.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_pages/import/incarnation_draw.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/hash_set.h"
#include "l3_rocksdb/status.h"
#include "types/names.h"

namespace hps {

// The next open removes records that cannot be removed now.
void Database::Retire(std::vector<std::unique_ptr<Family>> families) {
  if (families.empty()) return;
  if (read_only()) {
    for (const auto& family : families) db_->DestroyColumnFamilyHandle(family->handle);
    return;
  }
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::set<Incarnation> gone;  // an incarnation stays while another family has its changes
  {
    MutexLock lock(mutex_);
    for (const auto& family : families) {
      const Incarnation incarnation = family->table.incarnation;
      if (!AnyFamilyOf(incarnation)) gone.insert(incarnation);
      // If the switch to it may be in the log, it goes when that is undone.
      (IsUnconfirmed(FamilyIdOf(family->table)) ? leftovers_ : handles).push_back(family->handle);
    }
  }
  if (handles.empty()) return;
  // The next open needs the families until the change that replaced them is durable.
  if (const absl::Status synced = Sync(); !synced.ok()) {
    LogWarning(absl::StrCat("store '", path(), "': ", handles[0]->GetName(), " and ",
                            handles.size() - 1, " more are not dropped yet: ", synced.ToString()));
    MutexLock lock(mutex_);
    leftovers_.insert(leftovers_.end(), handles.begin(), handles.end());
    return;
  }
  // Done on a full disk too, because it frees space.
  rocksdb::WriteBatch batch;
  absl::Status removed;
  for (const Incarnation incarnation : gone)
    removed.Update(DeleteIncarnation(*db_, batch, incarnation));
  if (removed.ok() && batch.Count() > 0) removed = Commit(batch, false);
  if (!removed.ok())
    LogWarning(absl::StrCat("store '", path(),
                            "': removing the records of a dropped table: ", removed.ToString()));
  DropFamilies(handles);
  families.clear();  // with the room that was lent until the files are deleted
}

void Database::RetireOne(std::unique_ptr<Family> family) {
  std::vector<std::unique_ptr<Family>> families;
  families.push_back(std::move(family));
  Retire(std::move(families));
}

absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> Database::CreateFamilies(
    const std::vector<TableRecord>& tables) {
  HPS_RETURN_IF_ERROR(EnsureHealthy());
  // A disk that fails the drops fails the creation too. Without this check, the remains of failed
  // imports would accumulate.
  if (AnyLeftovers()) HPS_RETURN_IF_ERROR(DropLeftovers());
  std::vector<std::string> names;
  for (const TableRecord& table : tables) names.push_back(FamilyName(FamilyIdOf(table)));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status created = db_->CreateColumnFamilies(rocks_options_.rows(), names, &handles);
  if (!created.ok()) {
    DropFamilies(handles);
    return FailedWrite(created);
  }
  return handles;
}

void Database::DropFamilies(const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  const absl::Status dropped = TryToDrop(handles);
  if (!dropped.ok()) LogWarning(dropped.ToString());
}

// Keeps families that cannot be dropped for the next try. Returns the first error.
absl::Status Database::TryToDrop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  std::vector<std::string> names;
  for (rocksdb::ColumnFamilyHandle* handle : handles) names.push_back(handle->GetName());
  absl::Status first_error = DropPages(names);
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    const rocksdb::Status dropped = db_->DropColumnFamily(handle);
    if (!dropped.ok()) {
      first_error.Update(FromRocksStatus(
          dropped, absl::StrCat("store '", path(), "': dropping ", handle->GetName())));
      MutexLock lock(mutex_);
      leftovers_.push_back(handle);
      continue;
    }
    const MemtableSwitchLock::ExclusiveGuard freeing(memtable_switch_lock_);
    db_->DestroyColumnFamilyHandle(handle);
  }
  // RocksDB disables file deletions after a failed write of the MANIFEST. WalErrorShield defers the
  // deletions that are unsafe.
  if (!healthy()) db_->EnableFileDeletions(true).PermitUncheckedError();
  return first_error;
}

// Deletes the page files of the imports of families, except files of other families of the same
// imports. Keeps those that cannot be deleted for the next try.
absl::Status Database::DropPages(const std::vector<std::string>& families) {
  std::set<Incarnation> incarnations;
  for (const std::string& family : families) {
    const std::optional<Incarnation> incarnation = IncarnationOf(family);
    if (incarnation.has_value()) incarnations.insert(*incarnation);
  }
  if (incarnations.empty()) return absl::OkStatus();
  PageFileSet kept;
  {
    MutexLock lock(mutex_);
    kept = KnownPageFiles();
  }
  const absl::Status deleted = RemovePageFiles(env(), path(), incarnations, kept);
  if (deleted.ok()) return deleted;
  MutexLock lock(mutex_);
  leftover_files_.insert(leftover_files_.end(), families.begin(), families.end());
  return deleted;
}

absl::Status Database::RemoveUnknownPageFiles() {
  PageFileSet known;
  {
    MutexLock lock(mutex_);
    known = KnownPageFiles();
  }
  return RemoveOtherPageFiles(env(), path(), known);
}

PageFileSet Database::KnownPageFiles() const {
  PageFileSet files;
  for (const auto& [id, family] : families_) AddPageFiles(family->table, files);
  return files;
}

bool Database::AnyFamilyOf(Incarnation incarnation) const {
  const auto first = families_.lower_bound({incarnation});
  return first != families_.end() && first->first.incarnation == incarnation;
}

void Database::RetryDrops() {
  if (!AnyLeftovers()) return;
  const SpaceReserve::Loan room = reserve_.Lend();
  const absl::Status tidied = DropLeftovers();
  if (!tidied.ok()) LogWarning(absl::StrCat(tidied.ToString(), "; will be retried"));
}

bool Database::AnyLeftovers() const {
  MutexLock lock(mutex_);
  return !leftovers_.empty() || !leftover_files_.empty() || !unconfirmed_switches_.empty();
}

// Drops what remains because the disk failed. REQUIRES: AnyLeftovers(), change_mutex_ is held.
absl::Status Database::DropLeftovers() {
  // The changes that replaced the remains must be durable first.
  HPS_RETURN_IF_ERROR(Sync());
  HPS_RETURN_IF_ERROR(UndoSwitches());
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::vector<std::string> families;
  {
    MutexLock lock(mutex_);
    handles.swap(leftovers_);
    families.swap(leftover_files_);
  }
  absl::Status dropped = TryToDrop(handles);
  dropped.Update(DropPages(families));
  return dropped;
}

// A failed switch may be in the WAL. Writes the current records after it, durably, so that a replay
// of the WAL ends with these.
absl::Status Database::UndoSwitches() {
  rocksdb::WriteBatch batch;
  {
    MutexLock lock(mutex_);
    for (const TableRecord& table : unconfirmed_switches_) UndoSwitch(table, batch);
    for (const Incarnation incarnation : unconfirmed_replacements_) DeleteUsed(batch, incarnation);
    for (const std::string& model : unconfirmed_networks_) {
      const auto current = catalog_.networks.find(model);
      if (current == catalog_.networks.end()) {
        DeleteNetwork(batch, model);
      } else {
        PutNetwork(batch, model, current->second);
      }
    }
  }
  if (batch.Count() == 0) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(Commit(batch, true));
  MutexLock lock(mutex_);
  unconfirmed_switches_.clear();
  unconfirmed_replacements_.clear();
  unconfirmed_networks_.clear();
  return absl::OkStatus();
}

void Database::UndoSwitch(const TableRecord& table, rocksdb::WriteBatch& batch) {
  const auto current = catalog_.tables.find(table.spec.name);
  if (current == catalog_.tables.end()) {
    DeleteTable(batch, table.spec.name);
  } else {
    PutTable(batch, current->second);
  }
  if (table.first_file != 0) return;  // a merge: the incarnation is in use
  // Allows the import to be retried.
  DeleteUsed(batch, table.incarnation);
  if (!table.import_id.empty()) DeleteUsed(batch, ImportIdNumber(table.spec.name, table.import_id));
}

bool Database::IsUnconfirmed(const FamilyId& id) const {
  return std::any_of(unconfirmed_switches_.begin(), unconfirmed_switches_.end(),
                     [&](const TableRecord& table) { return FamilyIdOf(table) == id; });
}

std::vector<rocksdb::ColumnFamilyHandle*> Database::NewContents::AllHandles() const {
  std::vector<rocksdb::ColumnFamilyHandle*> all = handles;
  if (network_handle != nullptr) all.push_back(network_handle);
  return all;
}

absl::Status Database::PutNewNetwork(const std::string& model, const ModelNetwork& network,
                                     NewContents& contents) {
  const Incarnation id = DrawIncarnation();
  HPS_RETURN_IF_ERROR(CheckRoomFor(2 * network.onnx.size()));
  HPS_RETURN_IF_ERROR(EnsureHealthy());
  if (AnyLeftovers()) HPS_RETURN_IF_ERROR(DropLeftovers());  // as in CreateFamilies
  const rocksdb::Status created = db_->CreateColumnFamily(
      rocks_options_.catalog(), NetworkFamilyName(id), &contents.network_handle);
  if (!created.ok()) return FailedWrite(created);
  contents.network_model = model;
  contents.network = {.id = id,
                      .digest = network.digest,
                      .onnx_bytes = network.onnx.size(),
                      .inputs = network.inputs};
  rocksdb::WriteBatch batch;
  PutNetworkBytes(batch, contents.network_handle, id, network.onnx);
  HPS_RETURN_IF_ERROR(Commit(batch, true));
  HPS_FAULT_POINT("l3.import.after_network");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ModelNetwork>> Database::Network(const std::string& model) {
  NetworkRecord record;
  std::optional<Pin> pin;
  {
    MutexLock lock(mutex_);
    const auto found = catalog_.networks.find(model);
    if (found == catalog_.networks.end()) return std::optional<ModelNetwork>();
    record = found->second;
    const auto family = families_.find({record.id});
    if (family != families_.end()) {
      ++family->second->pins;
      pin = Pin(shared_from_this(), family->second.get());
    }
  }
  absl::StatusOr<ModelNetwork> network = absl::NotFoundError("its bytes are missing");
  if (pin.has_value()) network = ReadNetwork(*db_, pin->family().handle, record);
  if (network.ok()) return std::optional<ModelNetwork>(*std::move(network));
  const absl::StatusCode code =
      absl::IsNotFound(network.status()) ? absl::StatusCode::kDataLoss : network.status().code();
  return absl::Status(code,
                      absl::StrCat("store '", path(), "': the dense network of model '", model,
                                   "': ", network.status().message(), "; import the model again"));
}

// Whether a switch whose write failed can be read all the same.
bool Database::IsSwitchVisible(const NewContents& contents) const {
  if (contents.tables.empty()) return true;
  const TableRecord& first = contents.tables[0];
  return IncarnationInRocks(first.spec.name, 0) == first.incarnation;
}

void Database::ApplySwitch(const NewContents& contents,
                           std::vector<std::unique_ptr<Family>>& unused) {
  for (size_t i = 0; i < contents.tables.size(); ++i) {
    const TableRecord& table = contents.tables[i];
    const auto old = catalog_.tables.find(table.spec.name);
    if (old != catalog_.tables.end()) unused.push_back(TakeReplaced(FamilyIdOf(old->second)));
    catalog_.tables[table.spec.name] = table;
    AddFamily(table, contents.handles[i]).pages = contents.pages[i];
  }
  if (!contents.network_model.empty()) {
    const auto old = catalog_.networks.find(contents.network_model);
    if (old != catalog_.networks.end()) unused.push_back(TakeReplaced({old->second.id}));
    catalog_.networks[contents.network_model] = contents.network;
    AddFamily({.incarnation = contents.network.id}, contents.network_handle);
  }
  std::erase(unused, nullptr);  // those that have readers
}

absl::Status Database::SwitchTables(NewContents contents,
                                    const std::vector<Incarnation>& replaced) {
  const CatalogContents before = catalog();
  rocksdb::WriteBatch batch;
  for (TableRecord& table : contents.tables) {
    table.model_version = before.NextModelVersion(ModelOf(table.spec.name));
    PutTable(batch, table);
    PutUsed(batch, table);
    if (!table.import_id.empty()) PutUsed(batch, ImportIdNumber(table.spec.name, table.import_id));
  }
  if (!contents.network_model.empty()) {
    PutNetwork(batch, contents.network_model, contents.network);
  }
  for (const Incarnation incarnation : replaced) PutUsed(batch, incarnation);
  absl::Status ready = CheckRoomFor(batch.GetDataSize());
  if (ready.ok()) ready = EnsureHealthy();
  if (!ready.ok()) {
    // Nothing was written, so the import can be retried.
    DropFamilies(contents.AllHandles());
    return ready;
  }
  const absl::Status written = Commit(batch, true);
  if (!written.ok() && !IsSwitchVisible(contents)) {
    // The switch may be in the WAL, and the next open may replay it. It then needs the column
    // families.
    {
      MutexLock lock(mutex_);
      const auto add = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      add(unconfirmed_switches_, contents.tables);
      add(unconfirmed_replacements_, replaced);
      add(leftovers_, contents.AllHandles());
      if (!contents.network_model.empty()) unconfirmed_networks_.insert(contents.network_model);
    }
    const absl::Status dropped = DropLeftovers();
    if (!dropped.ok()) LogWarning(dropped.ToString());
    return written;
  }
  std::vector<std::unique_ptr<Family>> unused;
  {
    MutexLock lock(mutex_);
    ApplySwitch(contents, unused);
  }
  NoteTablesChanged();
  Retire(std::move(unused));
  return written;
}

// Reads a table's record from RocksDB after a failed change of it; nullopt = no table.
std::optional<Incarnation> Database::IncarnationInRocks(const std::string& name,
                                                        Incarnation if_unknown) const {
  const absl::StatusOr<CatalogContents> contents = ReadCatalog(*db_);
  if (!contents.ok()) return if_unknown;
  const auto table = contents->tables.find(name);
  if (table == contents->tables.end()) return std::nullopt;
  return table->second.incarnation;
}

// Flushes the networks and the catalog to table files, so that damage in the WAL cannot undo a
// change of tables. Then writes the mark, which detects a MANIFEST that lost its end. The change is
// durable without both.
void Database::NoteTablesChanged() {
  // Not on a store with damage. The next regular open does it.
  if (damaged_) return;
  const std::vector<Pin> networks = PinAll(FamilyKind::kNetwork);
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  for (const Pin& network : networks) families.push_back(network.family().handle);
  families.push_back(db_->DefaultColumnFamily());
  absl::Status noted = FromRocksStatus(FlushFamilies(families), "flushing the catalog");
  noted.Update(WriteManifestMark(*db_, path()));
  if (!noted.ok()) LogWarning(absl::StrCat("store '", path(), "': ", noted.ToString()));
}

absl::Status Database::DropTables(const std::vector<std::string>& names) {
  for (const std::string& name : names) HPS_RETURN_IF_ERROR(PinTable(name).status());
  HPS_FAULT_POINT("l3.drop.before_write");
  std::vector<std::unique_ptr<Family>> unused;
  absl::Status written;
  {
    const SpaceReserve::Loan room = reserve_.Lend();
    MutexLock record_lock(table_record_mutex_);
    const std::vector<TableRecord> others = OthersAfterDrop(names);
    written = WriteDrop(names, others);
    if (!written.ok() && IncarnationInRocks(names.front(), 1).has_value()) return written;
    HPS_FAULT_POINT("l3.drop.after_write");
    MutexLock lock(mutex_);
    for (const std::string& name : names) {
      const auto table = catalog_.tables.find(name);
      // Held until the table's files are deleted, because deleting them needs space too.
      families_[FamilyIdOf(table->second)]->room = reserve_.Lend();
      unused.push_back(TakeReplaced(FamilyIdOf(table->second)));
      catalog_.tables.erase(table);
    }
    const auto network = catalog_.networks.find(ModelOf(names.front()));
    if (others.empty() && network != catalog_.networks.end()) {
      unused.push_back(TakeReplaced({network->second.id}));
      catalog_.networks.erase(network);
    }
    for (const TableRecord& other : others)
      catalog_.tables[other.spec.name].model_version = other.model_version;
  }
  NoteTablesChanged();
  std::erase(unused, nullptr);  // those that have readers
  Retire(std::move(unused));
  return written;
}

absl::Status Database::DropNetwork(const std::string& model) {
  const Incarnation id = catalog().networks.at(model).id;
  rocksdb::WriteBatch batch;
  DeleteNetwork(batch, model);
  HPS_RETURN_IF_ERROR(Commit(batch, true));
  std::unique_ptr<Family> unused;
  {
    MutexLock lock(mutex_);
    catalog_.networks.erase(model);
    unused = TakeReplaced({id});
  }
  NoteTablesChanged();
  if (unused != nullptr) RetireOne(std::move(unused));
  return absl::OkStatus();
}

// Checks neither space nor failed flushes, only that the WAL is flushed: a drop is meant to free
// space on a disk that is too full for the flushes.
absl::Status Database::WriteDrop(const std::vector<std::string>& names,
                                 const std::vector<TableRecord>& others) {
  if (const absl::Status well = EnsureHealthy(); !well.ok()) LogWarning(well.ToString());
  HPS_RETURN_IF_ERROR(FlushWal());
  rocksdb::WriteBatch batch;
  for (const std::string& name : names) DeleteTable(batch, name);
  for (const TableRecord& table : others) PutUsed(batch, table);
  const std::string model = ModelOf(names.front());
  if (others.empty() && catalog().networks.contains(model)) DeleteNetwork(batch, model);
  return Commit(batch, true);
}

const TableRecord* Database::FindCurrent(const std::string& table, Incarnation incarnation) const {
  const auto found = catalog_.tables.find(table);
  const bool is_current =
      found != catalog_.tables.end() && found->second.incarnation == incarnation;
  return is_current ? &found->second : nullptr;
}

uint64_t Database::RecordsLost(const std::string& table, Incarnation incarnation) const {
  MutexLock lock(mutex_);
  const TableRecord* const record = FindCurrent(table, incarnation);
  return record == nullptr ? 0 : record->update_records_lost;
}

std::vector<uint16_t> Database::UnorderedHashes(const std::string& table,
                                                Incarnation incarnation) const {
  MutexLock lock(mutex_);
  const TableRecord* const record = FindCurrent(table, incarnation);
  return record == nullptr ? std::vector<uint16_t>() : HashesOf(record->unordered_hashes);
}

absl::Status Database::WriteWithStreamState(const std::string& table, Incarnation incarnation,
                                            const DurableWrite& write, rocksdb::WriteBatch& batch) {
  MutexLock record_lock(table_record_mutex_);
  std::optional<TableRecord> record;
  {
    MutexLock lock(mutex_);
    if (FindCurrent(table, incarnation) != nullptr) {
      // Before the write: if it is unknown whether it was done, the next one must keep them. Hashes
      // without a key cost misses only.
      AddHashes(write.unordered_hashes, catalog_.tables[table].unordered_hashes);
      record = catalog_.tables[table];
    }
  }
  if (!record.has_value()) return Write(batch, false);
  record->update_records_lost += write.records_lost;
  PutUsed(batch, *record);
  HPS_RETURN_IF_ERROR(Write(batch, false));
  MutexLock lock(mutex_);
  if (FindCurrent(table, incarnation) == nullptr) return absl::OkStatus();
  catalog_.tables[table].update_records_lost = record->update_records_lost;
  return absl::OkStatus();
}

// The other tables of the model, with the model version that the drop creates.
std::vector<TableRecord> Database::OthersAfterDrop(const std::vector<std::string>& names) const {
  const CatalogContents before = catalog();
  const std::string model = ModelOf(names.front());
  std::vector<TableRecord> others;
  for (const auto& [other, table] : before.tables) {
    if (ModelOf(other) != model || std::find(names.begin(), names.end(), other) != names.end())
      continue;
    others.push_back(table);
    others.back().model_version = before.NextModelVersion(model);
  }
  return others;
}

}  // namespace hps
