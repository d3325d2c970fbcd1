#include "l3_rocksdb/family_files.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_pages/import/incarnation_draw.h"
#include "l3_rocksdb/status.h"

namespace hps {

FamilyFiles::~FamilyFiles() {
  MutexLock lock(mutex_);
  for (rocksdb::ColumnFamilyHandle* handle : leftovers_)
    store_.db().DestroyColumnFamilyHandle(handle);
}

// A disk that fails the drops fails the creation too. Without the retry, the remains of failed
// imports would accumulate.
absl::Status FamilyFiles::PrepareToCreate() {
  HPS_RETURN_IF_ERROR(writer_.EnsureHealthy());
  return AnyLeftovers() ? DropLeftovers() : absl::OkStatus();
}

absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> FamilyFiles::Create(
    const std::vector<TableRecord>& tables) {
  HPS_RETURN_IF_ERROR(PrepareToCreate());
  std::vector<std::string> names;
  for (const TableRecord& table : tables) names.push_back(FamilyName(FamilyIdOf(table)));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status created =
      store_.db().CreateColumnFamilies(store_.rocks_options().rows(), names, &handles);
  if (created.ok()) return handles;
  Drop(handles);
  return writer_.FailedWrite(created);
}

absl::Status FamilyFiles::CreateNetwork(const std::string& model, const ModelNetwork& network,
                                        NewContents& contents) {
  const Incarnation id = DrawIncarnation();
  HPS_RETURN_IF_ERROR(store_.space().CheckRoomFor(2 * network.onnx.size()));
  HPS_RETURN_IF_ERROR(PrepareToCreate());
  const rocksdb::Status created = store_.db().CreateColumnFamily(
      store_.rocks_options().catalog(), NetworkFamilyName(id), &contents.network_handle);
  if (!created.ok()) return writer_.FailedWrite(created);
  contents.network_model = model;
  contents.network = {.id = id,
                      .digest = network.digest,
                      .onnx_bytes = network.onnx.size(),
                      .inputs = network.inputs};
  rocksdb::WriteBatch batch;
  PutNetworkBytes(batch, contents.network_handle, id, network.onnx);
  HPS_RETURN_IF_ERROR(writer_.Commit(batch, true));
  HPS_FAULT_POINT("l3.import.after_network");
  return absl::OkStatus();
}

void FamilyFiles::Keep(const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  MutexLock lock(mutex_);
  leftovers_.insert(leftovers_.end(), handles.begin(), handles.end());
}

// The next open removes records that cannot be removed now.
void FamilyFiles::Retire(std::vector<std::unique_ptr<Family>> families) {
  if (families.empty()) return;
  if (store_.read_only()) {
    for (const auto& family : families) store_.db().DestroyColumnFamilyHandle(family->handle);
    return;
  }
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::set<Incarnation> gone;  // an incarnation stays while another family has its changes
  for (const auto& family : families) {
    const Incarnation incarnation = family->table.incarnation;
    if (!families_.AnyOf(incarnation)) gone.insert(incarnation);
    // If the switch to it may be in the log, it goes when that is undone.
    if (catalog_.IsUnconfirmed(FamilyIdOf(family->table))) {
      Keep({family->handle});
    } else {
      handles.push_back(family->handle);
    }
  }
  if (handles.empty()) return;
  // The next open needs the families until the change that replaced them is durable.
  if (const absl::Status synced = writer_.Sync(); !synced.ok()) {
    LogWarning(absl::StrCat("store '", store_.path(), "': ", handles[0]->GetName(), " and ",
                            handles.size() - 1, " more are not dropped yet: ", synced.ToString()));
    return Keep(handles);
  }
  // Done on a full disk too, because it frees space.
  rocksdb::WriteBatch batch;
  absl::Status removed;
  for (const Incarnation incarnation : gone)
    removed.Update(DeleteIncarnation(store_.db(), batch, incarnation));
  if (removed.ok() && batch.Count() > 0) removed = writer_.Commit(batch, false);
  if (!removed.ok())
    LogWarning(absl::StrCat("store '", store_.path(),
                            "': removing the records of a dropped table: ", removed.ToString()));
  Drop(handles);
  families.clear();  // with the room that was lent until the files are deleted
}

void FamilyFiles::Drop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  const absl::Status dropped = TryToDrop(handles);
  if (!dropped.ok()) LogWarning(dropped.ToString());
}

void FamilyFiles::DropUnconfirmed(const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  Keep(handles);
  const absl::Status dropped = DropLeftovers();
  if (!dropped.ok()) LogWarning(dropped.ToString());
}

// Keeps families that cannot be dropped for the next try. Returns the first error.
absl::Status FamilyFiles::TryToDrop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  std::vector<std::string> names;
  for (rocksdb::ColumnFamilyHandle* handle : handles) names.push_back(handle->GetName());
  absl::Status first_error = DropPages(names);
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    const rocksdb::Status dropped = store_.db().DropColumnFamily(handle);
    if (dropped.ok()) {
      writer_.DestroyHandle(handle);
      continue;
    }
    first_error.Update(FromRocksStatus(
        dropped, absl::StrCat("store '", store_.path(), "': dropping ", handle->GetName())));
    Keep({handle});
  }
  // RocksDB disables file deletions after a failed write of the MANIFEST. WalErrorShield defers the
  // deletions that are unsafe.
  if (!writer_.healthy()) store_.db().EnableFileDeletions(true).PermitUncheckedError();
  return first_error;
}

// Deletes the page files of the imports of families, except files of other families of the same
// imports. Keeps those that cannot be deleted for the next try.
absl::Status FamilyFiles::DropPages(const std::vector<std::string>& families) {
  std::set<Incarnation> incarnations;
  for (const std::string& family : families) {
    const std::optional<Incarnation> incarnation = IncarnationOf(family);
    if (incarnation.has_value()) incarnations.insert(*incarnation);
  }
  if (incarnations.empty()) return absl::OkStatus();
  const absl::Status deleted =
      RemovePageFiles(store_.env(), store_.path(), incarnations, families_.PageFiles());
  if (deleted.ok()) return deleted;
  MutexLock lock(mutex_);
  leftover_files_.insert(leftover_files_.end(), families.begin(), families.end());
  return deleted;
}

void FamilyFiles::RetryDrops() {
  if (!AnyLeftovers()) return;
  const SpaceReserve::Loan room = store_.reserve().Lend();
  const absl::Status tidied = DropLeftovers();
  if (!tidied.ok()) LogWarning(absl::StrCat(tidied.ToString(), "; will be retried"));
}

bool FamilyFiles::AnyLeftovers() const {
  if (catalog_.AnyUnconfirmed()) return true;
  MutexLock lock(mutex_);
  return !leftovers_.empty() || !leftover_files_.empty();
}

absl::Status FamilyFiles::DropLeftovers() {
  // The changes that replaced the remains must be durable first.
  HPS_RETURN_IF_ERROR(writer_.Sync());
  HPS_RETURN_IF_ERROR(catalog_.UndoUnconfirmed());
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

absl::Status FamilyFiles::DropUnknown(
    const std::map<Incarnation, IncarnationRecords>& incarnations) {
  for (rocksdb::ColumnFamilyHandle* handle : store_.TakeHandles()) {
    if (handle->GetName() == rocksdb::kDefaultColumnFamilyName) {
      store_.db().DestroyColumnFamilyHandle(handle);
    } else {
      Drop({handle});
    }
  }
  rocksdb::WriteBatch batch;
  for (const auto& [incarnation, records] : incarnations) {
    if (!families_.AnyOf(incarnation))
      HPS_RETURN_IF_ERROR(DeleteIncarnation(store_.db(), batch, incarnation));
  }
  if (batch.Count() > 0) HPS_RETURN_IF_ERROR(writer_.Commit(batch, false));
  store_.LogIfFailed(RemoveOtherPageFiles(store_.env(), store_.path(), families_.PageFiles()));
  return absl::OkStatus();
}

}  // namespace hps
