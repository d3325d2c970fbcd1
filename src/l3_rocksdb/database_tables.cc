// Changes of the set of tables: creates column families, makes them current by a switch or a drop,
// and drops those that have no reader left.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/salvage/key_list.h"
#include "l3_rocksdb/status.h"
#include "types/names.h"

namespace hps {

// The next open removes records that cannot be removed now.
void Database::Retire(std::unique_ptr<Family> family) {
  if (read_only()) {
    db_->DestroyColumnFamilyHandle(family->handle);
    return;
  }
  // The next open needs the family until the change that replaced it is durable.
  if (const absl::Status synced = Sync(); !synced.ok()) {
    LogWarning(absl::StrCat("store '", path(), "': ", family->handle->GetName(),
                            " is not dropped yet: ", synced.ToString()));
    MutexLock lock(mutex_);
    leftovers_.push_back(family->handle);
    return;
  }
  // Done on a full disk too, because it frees space.
  rocksdb::WriteBatch batch;
  absl::Status removed = DeleteIncarnation(*db_, batch, family->table.incarnation);
  if (removed.ok() && batch.Count() > 0) removed = Commit(batch, false);
  if (!removed.ok())
    LogWarning(absl::StrCat("store '", path(),
                            "': removing the records of a dropped table: ", removed.ToString()));
  DropFamilies({family->handle});
}

absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> Database::CreateFamilies(
    const std::vector<TableRecord>& tables) {
  HPS_RETURN_IF_ERROR(EnsureHealthy());
  // A disk that fails the drops fails the creation too. Without this check, the remains of failed
  // imports would accumulate.
  if (AnyLeftovers()) HPS_RETURN_IF_ERROR(DropLeftovers());
  std::vector<std::string> names;
  for (const TableRecord& table : tables) names.push_back(FamilyName(table.incarnation));
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
  absl::Status first_error;
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    first_error.Update(DropKeyList(handle->GetName()));
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

// Deletes the key list of a family's import. Keeps a list that cannot be deleted for the next try.
absl::Status Database::DropKeyList(const std::string& family) {
  const std::optional<Incarnation> incarnation = IncarnationOf(family);
  if (key_list_ == nullptr || !incarnation.has_value()) return absl::OkStatus();
  absl::Status deleted;
  {
    const MemtableSwitchLock::SharedGuard switching(memtable_switch_lock_);
    deleted = DeleteKeyList(*db_, key_list_, *incarnation);
  }
  if (deleted.ok()) return deleted;
  MutexLock lock(mutex_);
  leftover_lists_.push_back(family);
  return deleted;
}

void Database::RetryDrops() {
  if (!AnyLeftovers()) return;
  const SpaceReserve::Loan room = reserve_.Lend();
  const absl::Status tidied = DropLeftovers();
  if (!tidied.ok()) LogWarning(absl::StrCat(tidied.ToString(), "; will be retried"));
}

bool Database::AnyLeftovers() const {
  MutexLock lock(mutex_);
  return !leftovers_.empty() || !leftover_lists_.empty() || !unconfirmed_switches_.empty();
}

// Drops what remains because the disk failed. REQUIRES: AnyLeftovers(), change_mutex_ is held.
absl::Status Database::DropLeftovers() {
  // The changes that replaced the remains must be durable first.
  HPS_RETURN_IF_ERROR(Sync());
  HPS_RETURN_IF_ERROR(UndoSwitches());
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::vector<std::string> lists;
  {
    MutexLock lock(mutex_);
    handles.swap(leftovers_);
    lists.swap(leftover_lists_);
  }
  absl::Status dropped = TryToDrop(handles);
  for (const std::string& family : lists) dropped.Update(DropKeyList(family));
  return dropped;
}

// A failed switch may be in the WAL. Writes the current records after it, durably, so that a replay
// of the WAL ends with these.
absl::Status Database::UndoSwitches() {
  rocksdb::WriteBatch batch;
  {
    MutexLock lock(mutex_);
    for (const TableRecord& table : unconfirmed_switches_) {
      const auto current = catalog_.tables.find(table.spec.name);
      if (current == catalog_.tables.end()) {
        DeleteTable(batch, table.spec.name);
      } else {
        PutTable(batch, current->second);
      }
      // Allows the import to be retried.
      DeleteUsed(batch, table.incarnation);
    }
    for (const Incarnation incarnation : unconfirmed_replacements_) DeleteUsed(batch, incarnation);
  }
  if (batch.Count() == 0) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(Commit(batch, true));
  MutexLock lock(mutex_);
  unconfirmed_switches_.clear();
  unconfirmed_replacements_.clear();
  return absl::OkStatus();
}

absl::Status Database::SwitchTables(std::vector<TableRecord> tables,
                                    const std::vector<rocksdb::ColumnFamilyHandle*>& handles,
                                    const std::vector<Incarnation>& replaced,
                                    rocksdb::WriteBatch& batch) {
  const CatalogContents before = catalog();
  for (TableRecord& table : tables) {
    table.model_version = before.NextModelVersion(ModelOf(table.spec.name));
    PutTable(batch, table);
    PutUsed(batch, table);
  }
  for (const Incarnation incarnation : replaced) PutUsed(batch, incarnation);
  absl::Status ready = CheckRoomFor(batch.GetDataSize());
  if (ready.ok()) ready = EnsureHealthy();
  if (!ready.ok()) {
    // Nothing was written, so the import can be retried.
    DropFamilies(handles);
    return ready;
  }
  const absl::Status written = Commit(batch, true);
  if (!written.ok() &&
      (tables.empty() || IncarnationInRocks(tables[0].spec.name, 0) != tables[0].incarnation)) {
    // The switch may be in the WAL, and the next open may replay it. It then needs the column
    // families.
    {
      MutexLock lock(mutex_);
      unconfirmed_switches_.insert(unconfirmed_switches_.end(), tables.begin(), tables.end());
      unconfirmed_replacements_.insert(unconfirmed_replacements_.end(), replaced.begin(),
                                       replaced.end());
      leftovers_.insert(leftovers_.end(), handles.begin(), handles.end());
    }
    const absl::Status dropped = DropLeftovers();
    if (!dropped.ok()) LogWarning(dropped.ToString());
    return written;
  }
  std::vector<std::unique_ptr<Family>> unused;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < tables.size(); ++i) {
      const TableRecord& table = tables[i];
      const auto old = catalog_.tables.find(table.spec.name);
      if (old != catalog_.tables.end()) {
        Family* family = families_[old->second.incarnation].get();
        family->current = false;
        if (auto taken = TakeUnpinned(family); taken != nullptr) unused.push_back(std::move(taken));
      }
      catalog_.tables[table.spec.name] = table;
      AddFamily(table, handles[i]);
    }
  }
  NoteTablesChanged();
  for (auto& family : unused) Retire(std::move(family));
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

// Flushes the catalog to a table file, so that damage in the WAL cannot undo a change of tables.
// Then writes the mark, which detects a MANIFEST that lost its end. The change is durable without
// both.
void Database::NoteTablesChanged() {
  // Not on a store with damage. The next regular open does it.
  if (damaged_) return;
  absl::Status noted =
      FromRocksStatus(FlushFamilies({db_->DefaultColumnFamily()}), "flushing the catalog");
  noted.Update(WriteManifestMark(*db_, path()));
  if (!noted.ok()) LogWarning(absl::StrCat("store '", path(), "': ", noted.ToString()));
}

absl::Status Database::DropTable(const std::string& name) {
  HPS_RETURN_IF_ERROR(PinTable(name).status());
  HPS_FAULT_POINT("l3.drop.before_write");
  // Held until the table's files are deleted, because deleting them needs space too.
  SpaceReserve::Loan room = reserve_.Lend();
  std::unique_ptr<Family> unused;
  absl::Status written;
  {
    MutexLock record_lock(table_record_mutex_);
    const std::vector<TableRecord> others = OthersAfterDrop(name);
    written = WriteDrop(name, others);
    if (!written.ok() && IncarnationInRocks(name, 1).has_value()) return written;
    HPS_FAULT_POINT("l3.drop.after_write");
    MutexLock lock(mutex_);
    const auto table = catalog_.tables.find(name);
    Family* family = families_[table->second.incarnation].get();
    family->current = false;
    family->room = std::move(room);
    unused = TakeUnpinned(family);
    catalog_.tables.erase(table);
    for (const TableRecord& other : others) {
      catalog_.tables[other.spec.name].model_version = other.model_version;
    }
  }
  NoteTablesChanged();
  if (unused != nullptr) Retire(std::move(unused));
  return written;
}

// Checks neither space nor failed flushes, only that the WAL is flushed: a drop is meant to free
// space on a disk that is too full for the flushes.
absl::Status Database::WriteDrop(const std::string& name, const std::vector<TableRecord>& others) {
  if (const absl::Status well = EnsureHealthy(); !well.ok()) LogWarning(well.ToString());
  HPS_RETURN_IF_ERROR(FlushWal());
  rocksdb::WriteBatch batch;
  DeleteTable(batch, name);
  for (const TableRecord& table : others) PutUsed(batch, table);
  return Commit(batch, true);
}

absl::Status Database::WriteWithLoss(const std::string& table, Incarnation incarnation,
                                     uint64_t records_lost, rocksdb::WriteBatch& batch) {
  MutexLock record_lock(table_record_mutex_);
  {
    MutexLock lock(mutex_);
    const auto found = catalog_.tables.find(table);
    if (found != catalog_.tables.end() && found->second.incarnation == incarnation) {
      TableRecord record = found->second;
      record.update_records_lost += records_lost;
      PutUsed(batch, record);
    }
  }
  HPS_RETURN_IF_ERROR(Write(batch, false));
  MutexLock lock(mutex_);
  const auto found = catalog_.tables.find(table);
  if (found != catalog_.tables.end() && found->second.incarnation == incarnation)
    found->second.update_records_lost += records_lost;
  return absl::OkStatus();
}

// The other tables of the model, with the model version that the drop creates.
std::vector<TableRecord> Database::OthersAfterDrop(const std::string& name) const {
  const CatalogContents before = catalog();
  const std::string model = ModelOf(name);
  std::vector<TableRecord> others;
  for (const auto& [other, table] : before.tables) {
    if (other == name || ModelOf(other) != model) continue;
    others.push_back(table);
    others.back().model_version = before.NextModelVersion(model);
  }
  return others;
}

}  // namespace hps
