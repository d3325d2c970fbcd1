#include "l3_rocksdb/table_merge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/cursor.h"
#include "l3_rocksdb/files/store_files.h"

namespace hps {
namespace {

// Bytes of the changes, about.
uint64_t ChangeBytes(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* handle) {
  uint64_t sum = 0;
  for (const std::string& property : {rocksdb::DB::Properties::kLiveSstFilesSize,
                                      rocksdb::DB::Properties::kCurSizeAllMemTables}) {
    uint64_t bytes = 0;
    if (db.GetIntProperty(handle, property, &bytes)) sum += bytes;
  }
  return sum;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableMerge>> TableMerge::Begin(Database& database,
                                                              const std::string& table) {
  MutexLock change_lock(database.change_mutex());
  StoreDb& store = database.store();
  std::unique_ptr<TableMerge> merge(new TableMerge(database));
  HPS_ASSIGN_OR_RETURN(merge->from_, database.catalog().PinTable(table));
  Family& from = merge->from();
  // Other merges may have taken hours since the table was found to be due.
  if (!database.merge_queue().IsDue(from))
    return absl::CancelledError("the table has few changes now");
  TableRecord record = from.table;
  record.first_file += std::max<size_t>(record.page_files.size(), 1);
  record.page_files.resize(1);  // the file to be made, so that it is known
  merge->path_ = PageFilePath(store.path(), record.incarnation, record.first_file);
  HPS_RETURN_IF_ERROR(store.space().CheckRoomFor(from.pages->table->file_bytes() +
                                                 ChangeBytes(store.db(), from.handle)));
  HPS_FAULT_POINT("l3.merge.before_family");
  HPS_RETURN_IF_ERROR(MakeDirectories(store.env(), PagesDirectory(store.path())));
  HPS_RETURN_IF_ERROR(RemoveFile(store.env(), merge->path_));  // of a merge that failed
  HPS_ASSIGN_OR_RETURN(const auto handles, database.files().Create({record}));
  Family& to = database.families().Add(record, handles.front());
  merge->to_ = database.families().Pin(to);
  to.current = false;
  HPS_FAULT_POINT("l3.merge.after_family");
  MutexLock write_lock(from.write_mutex);
  if (!from.current) return absl::CancelledError("the table was replaced");
  merge->changes_ = MakeChangeCursor(merge->from_.Share());
  from.merge.successor = &to;
  return merge;
}

absl::Status TableMerge::Switch(const PageFileDescription& file,
                                const std::function<void(const FamilyPin&)>& on_switch) {
  MutexLock change_lock(database_.change_mutex());
  StoreDb& store = database_.store();
  TableRecord record = to().table;
  record.row_count = file.row_count;
  record.page_files.clear();
  if (file.row_count > 0)
    record.page_files.push_back({file.row_count, file.first_key, file.last_key});
  HPS_ASSIGN_OR_RETURN(auto pages, database_.OpenPagesOf(record));
  if (pages->table->is_impaired()) {
    return absl::UnavailableError(absl::StrCat("store '", store.path(), "': '", path_,
                                               "' can't be read, although it was just written"));
  }
  HPS_FAULT_POINT("l3.merge.before_switch");
  // As in a drop: the switch is what frees the old files.
  SpaceReserve::Loan room = store.reserve().Lend();
  absl::Status written;
  {
    MutexLock write_lock(from().write_mutex);
    if (!from().current) return absl::CancelledError("the table was replaced");
    Catalog::Outcome outcome{};
    written = database_.catalog().SwitchMerged(record, outcome);
    if (outcome != Catalog::Outcome::kVisible) return written;
    {
      // Tables that are opened from now on write to the new family: after this.
      MutexLock new_write_lock(to().write_mutex);
      database_.families().NoteMerged(from(), to(), record, std::move(pages));
      database_.catalog().ApplyMerged(record);
      ForgetChanges();
    }
    from().room = std::move(room);
    on_switch(to_);
  }
  database_.NoteTablesChanged();
  HPS_FAULT_POINT("l3.merge.after_switch");
  return written;
}

// Without changes since the beginning of the merge, processes that open the store read-only need
// not ask RocksDB. The record may be deleted later than the switch, or stay after an error.
// REQUIRES: the write mutexes of both are held, and nothing was written to `to` alone.
void TableMerge::ForgetChanges() {
  if (to().changed) {
    // If all writes were refused, there is no record. The next write makes one, again or not.
    to().changed = from().changed.load();
    return;
  }
  rocksdb::WriteBatch batch;
  DeleteChanged(batch, to().table.incarnation);
  database_.store().LogIfFailed(database_.writer().Write(batch, false));
}

bool TableMerge::End() {
  changes_.reset();
  if (!is_switched()) {
    if (!ConfirmNoSwitch()) return false;
    MutexLock write_lock(from().write_mutex);
    database_.families().NoteNotMerged(from());
  }
  to_ = FamilyPin();
  from_ = FamilyPin();
  return true;
}

// If a switch is in the log, the process ends, and the log is replayed, the new family is current.
// So the new family gets all writes until the old record is behind the switch in the log. False: it
// is not yet.
bool TableMerge::ConfirmNoSwitch() {
  const FamilyId id = FamilyIdOf(to().table);
  if (!database_.catalog().IsUnconfirmed(id)) return true;
  MutexLock change_lock(database_.change_mutex());
  if (const absl::Status undone = database_.files().DropLeftovers(); !undone.ok())
    LogWarning(undone.ToString());
  return !database_.catalog().IsUnconfirmed(id);
}

}  // namespace hps
