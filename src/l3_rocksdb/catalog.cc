#include "l3_rocksdb/catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/hash_set.h"
#include "types/names.h"

namespace hps {
namespace {

// The tables of the model that `names` leaves, with the model version that the drop creates.
std::vector<TableRecord> OthersAfterDrop(const CatalogContents& before,
                                         const std::vector<std::string>& names) {
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

}  // namespace

std::vector<rocksdb::ColumnFamilyHandle*> NewContents::AllHandles() const {
  std::vector<rocksdb::ColumnFamilyHandle*> all = handles;
  if (network_handle != nullptr) all.push_back(network_handle);
  return all;
}

void Catalog::Load(CatalogContents contents) {
  MutexLock lock(mutex_);
  contents_ = std::move(contents);
}

CatalogContents Catalog::contents() const {
  MutexLock lock(mutex_);
  return contents_;
}

absl::StatusOr<FamilyPin> Catalog::PinTable(const std::string& name) {
  MutexLock lock(mutex_);
  const auto table = contents_.tables.find(name);
  if (table == contents_.tables.end()) {
    std::vector<std::string> names;
    for (const auto& [known, record] : contents_.tables) names.push_back(known);
    return absl::NotFoundError(absl::StrCat("store '", store_.path(), "' has no table '", name, "'",
                                            NearestNameHint(name, names)));
  }
  FamilyPin pin = families_.Pin(FamilyIdOf(table->second));
  if (pin) return pin;
  return absl::DataLossError(
      absl::StrCat("store '", store_.path(), "': the rows of table '", name, "' are missing"));
}

absl::StatusOr<std::optional<ModelNetwork>> Catalog::Network(const std::string& model) {
  NetworkRecord record;
  FamilyPin pin;
  {
    MutexLock lock(mutex_);
    const auto found = contents_.networks.find(model);
    if (found == contents_.networks.end()) return std::optional<ModelNetwork>();
    record = found->second;
    pin = families_.Pin({record.id});
  }
  absl::StatusOr<ModelNetwork> network = absl::NotFoundError("its bytes are missing");
  if (pin) network = ReadNetwork(store_.db(), pin.family().handle, record);
  if (network.ok()) return std::optional<ModelNetwork>(*std::move(network));
  const absl::StatusCode code =
      absl::IsNotFound(network.status()) ? absl::StatusCode::kDataLoss : network.status().code();
  return store_.InStore(
      {code, absl::StrCat("the dense network of model '", model, "': ", network.status().message(),
                          "; import the model again")});
}

const TableRecord* Catalog::FindCurrent(const std::string& table, Incarnation incarnation) const {
  const auto found = contents_.tables.find(table);
  const bool is_current =
      found != contents_.tables.end() && found->second.incarnation == incarnation;
  return is_current ? &found->second : nullptr;
}

uint64_t Catalog::RecordsLost(const std::string& table, Incarnation incarnation) const {
  MutexLock lock(mutex_);
  const TableRecord* const record = FindCurrent(table, incarnation);
  return record == nullptr ? 0 : record->update_records_lost;
}

std::vector<uint16_t> Catalog::UnorderedHashes(const std::string& table,
                                               Incarnation incarnation) const {
  MutexLock lock(mutex_);
  const TableRecord* const record = FindCurrent(table, incarnation);
  return record == nullptr ? std::vector<uint16_t>() : HashesOf(record->unordered_hashes);
}

absl::Status Catalog::WriteWithStreamState(const std::string& table, Incarnation incarnation,
                                           const DurableWrite& write, rocksdb::WriteBatch& batch) {
  MutexLock record_lock(record_mutex_);
  std::optional<TableRecord> record;
  {
    MutexLock lock(mutex_);
    if (FindCurrent(table, incarnation) != nullptr) {
      // Before the write: if it is unknown whether it was done, the next one must keep them. Hashes
      // without a key cost misses only.
      AddHashes(write.unordered_hashes, contents_.tables[table].unordered_hashes);
      record = contents_.tables[table];
    }
  }
  if (!record.has_value()) return writer_.Write(batch, false);
  record->update_records_lost += write.records_lost;
  PutUsed(batch, *record);
  HPS_RETURN_IF_ERROR(writer_.Write(batch, false));
  MutexLock lock(mutex_);
  if (FindCurrent(table, incarnation) == nullptr) return absl::OkStatus();
  contents_.tables[table].update_records_lost = record->update_records_lost;
  return absl::OkStatus();
}

// Whether a switch to the record can be read although its write failed.
bool Catalog::IsInRocks(const TableRecord& record) const {
  const absl::StatusOr<CatalogContents> written = ReadCatalog(store_.db());
  if (!written.ok()) return false;
  const auto found = written->tables.find(record.spec.name);
  return found != written->tables.end() && FamilyIdOf(found->second) == FamilyIdOf(record);
}

absl::Status Catalog::Switch(NewContents contents, const std::vector<Incarnation>& replaced,
                             Outcome& outcome, Unneeded& unneeded) {
  rocksdb::WriteBatch batch;
  const CatalogContents before = this->contents();
  for (TableRecord& table : contents.tables) {
    table.model_version = before.NextModelVersion(ModelOf(table.spec.name));
    PutTable(batch, table);
    PutUsed(batch, table);
    if (!table.import_id.empty()) PutUsed(batch, ImportIdNumber(table.spec.name, table.import_id));
  }
  if (!contents.network_model.empty()) PutNetwork(batch, contents.network_model, contents.network);
  for (const Incarnation incarnation : replaced) PutUsed(batch, incarnation);
  outcome = Outcome::kRefused;
  HPS_RETURN_IF_ERROR(store_.space().CheckRoomFor(batch.GetDataSize()));
  HPS_RETURN_IF_ERROR(writer_.EnsureHealthy());
  const absl::Status written = writer_.Commit(batch, true);
  const bool is_visible = written.ok() || contents.tables.empty() || IsInRocks(contents.tables[0]);
  outcome = is_visible ? Outcome::kVisible : Outcome::kUnconfirmed;
  if (is_visible) {
    ApplySwitch(contents, unneeded);
    return written;
  }
  MutexLock lock(mutex_);
  unconfirmed_tables_.insert(unconfirmed_tables_.end(), contents.tables.begin(),
                             contents.tables.end());
  unconfirmed_replacements_.insert(unconfirmed_replacements_.end(), replaced.begin(),
                                   replaced.end());
  if (!contents.network_model.empty()) unconfirmed_networks_.insert(contents.network_model);
  return written;
}

void Catalog::ApplySwitch(const NewContents& contents, Unneeded& unneeded) {
  std::vector<FamilyId> replaced;
  // Before they are named, and the others are replaced after that.
  for (size_t i = 0; i < contents.tables.size(); ++i)
    families_.Add(contents.tables[i], contents.handles[i], contents.pages[i]);
  if (!contents.network_model.empty())
    families_.Add({.incarnation = contents.network.id}, contents.network_handle);
  {
    MutexLock lock(mutex_);
    for (const TableRecord& table : contents.tables) {
      const auto old = contents_.tables.find(table.spec.name);
      if (old != contents_.tables.end()) replaced.push_back(FamilyIdOf(old->second));
      contents_.tables[table.spec.name] = table;
    }
    if (!contents.network_model.empty()) {
      const auto old = contents_.networks.find(contents.network_model);
      if (old != contents_.networks.end()) replaced.push_back({old->second.id});
      contents_.networks[contents.network_model] = contents.network;
    }
  }
  for (const FamilyId& id : replaced) NoteReplaced(id, unneeded);
}

void Catalog::NoteReplaced(const FamilyId& id, Unneeded& unneeded, SpaceReserve::Loan room) {
  std::unique_ptr<Family> family = families_.NoteReplaced(id, std::move(room));
  if (family != nullptr) unneeded.push_back(std::move(family));
}

absl::Status Catalog::SwitchMerged(const TableRecord& record, Outcome& outcome) {
  rocksdb::WriteBatch batch;
  PutTable(batch, record);
  outcome = Outcome::kRefused;
  HPS_RETURN_IF_ERROR(writer_.EnsureHealthy());
  const auto commit = [&]() -> absl::Status {
    HPS_FAULT_POINT("l3.merge.in_switch");
    return writer_.Commit(batch, true);
  };
  const absl::Status written = commit();
  outcome = written.ok() || IsInRocks(record) ? Outcome::kVisible : Outcome::kUnconfirmed;
  if (outcome == Outcome::kVisible) return written;
  MutexLock lock(mutex_);
  unconfirmed_tables_.push_back(record);
  return written;
}

void Catalog::ApplyMerged(const TableRecord& record) {
  MutexLock lock(mutex_);
  TableRecord& current = contents_.tables[record.spec.name];
  current.row_count = record.row_count;
  current.page_files = record.page_files;
  current.first_file = record.first_file;
}

absl::Status Catalog::Drop(const std::vector<std::string>& names, Outcome& outcome,
                           Unneeded& unneeded) {
  outcome = Outcome::kRefused;
  const std::string model = ModelOf(names.front());
  std::vector<FamilyId> tables;
  std::optional<FamilyId> network;
  absl::Status written;
  {
    MutexLock record_lock(record_mutex_);
    const CatalogContents before = contents();
    const std::vector<TableRecord> others = OthersAfterDrop(before, names);
    written = WriteDrop(names, others, before.networks.contains(model) && others.empty());
    if (!written.ok() && HasTableInRocks(names.front())) return written;
    HPS_FAULT_POINT("l3.drop.after_write");
    MutexLock lock(mutex_);
    for (const std::string& name : names)
      tables.push_back(FamilyIdOf(contents_.tables.extract(name).mapped()));
    const auto found = contents_.networks.find(model);
    if (others.empty() && found != contents_.networks.end()) {
      network = FamilyId{found->second.id};
      contents_.networks.erase(found);
    }
    for (const TableRecord& other : others)
      contents_.tables[other.spec.name].model_version = other.model_version;
  }
  outcome = Outcome::kVisible;
  for (const FamilyId& id : tables) NoteReplaced(id, unneeded, store_.reserve().Lend());
  if (network.has_value()) NoteReplaced(*network, unneeded);
  return written;
}

// After the write of a drop failed: whether RocksDB still has the table, or can't be read.
bool Catalog::HasTableInRocks(const std::string& name) const {
  const absl::StatusOr<CatalogContents> written = ReadCatalog(store_.db());
  return !written.ok() || written->tables.contains(name);
}

absl::Status Catalog::WriteDrop(const std::vector<std::string>& names,
                                const std::vector<TableRecord>& others, bool drops_network) {
  if (const absl::Status well = writer_.EnsureHealthy(); !well.ok()) LogWarning(well.ToString());
  HPS_RETURN_IF_ERROR(writer_.FlushWal());
  rocksdb::WriteBatch batch;
  for (const std::string& name : names) DeleteTable(batch, name);
  for (const TableRecord& table : others) PutUsed(batch, table);
  if (drops_network) DeleteNetwork(batch, ModelOf(names.front()));
  return writer_.Commit(batch, true);
}

absl::Status Catalog::DropNetwork(const std::string& model, Unneeded& unneeded) {
  const Incarnation id = contents().networks.at(model).id;
  rocksdb::WriteBatch batch;
  DeleteNetwork(batch, model);
  HPS_RETURN_IF_ERROR(writer_.Commit(batch, true));
  {
    MutexLock lock(mutex_);
    contents_.networks.erase(model);
  }
  NoteReplaced({id}, unneeded);
  return absl::OkStatus();
}

bool Catalog::AnyUnconfirmed() const {
  MutexLock lock(mutex_);
  return !unconfirmed_tables_.empty();
}

bool Catalog::IsUnconfirmed(const FamilyId& id) const {
  MutexLock lock(mutex_);
  return std::any_of(unconfirmed_tables_.begin(), unconfirmed_tables_.end(),
                     [&](const TableRecord& table) { return FamilyIdOf(table) == id; });
}

absl::Status Catalog::UndoUnconfirmed() {
  rocksdb::WriteBatch batch;
  {
    MutexLock lock(mutex_);
    for (const TableRecord& table : unconfirmed_tables_) UndoSwitch(table, batch);
    for (const Incarnation incarnation : unconfirmed_replacements_) DeleteUsed(batch, incarnation);
    for (const std::string& model : unconfirmed_networks_) {
      const auto current = contents_.networks.find(model);
      if (current == contents_.networks.end()) {
        DeleteNetwork(batch, model);
      } else {
        PutNetwork(batch, model, current->second);
      }
    }
  }
  if (batch.Count() == 0) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(writer_.Commit(batch, true));
  MutexLock lock(mutex_);
  unconfirmed_tables_.clear();
  unconfirmed_replacements_.clear();
  unconfirmed_networks_.clear();
  return absl::OkStatus();
}

void Catalog::UndoSwitch(const TableRecord& table, rocksdb::WriteBatch& batch) {
  const auto current = contents_.tables.find(table.spec.name);
  if (current == contents_.tables.end()) {
    DeleteTable(batch, table.spec.name);
  } else {
    PutTable(batch, current->second);
  }
  if (table.first_file != 0) return;  // a merge: the incarnation is in use
  // Allows the import to be retried.
  DeleteUsed(batch, table.incarnation);
  if (!table.import_id.empty()) DeleteUsed(batch, ImportIdNumber(table.spec.name, table.import_id));
}

}  // namespace hps
