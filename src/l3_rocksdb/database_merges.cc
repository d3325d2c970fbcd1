// Changes of tables: which keys have some, and their merges into new page files.
//
// A merge has a new column family and a new page file. From its beginning on, each write of the
// table goes to the old family and to the new one, in one atomic step. The changes that the merge
// reads are those of the old family at this moment. So old file + old family, and new file + new
// family, hold the same rows at every later moment, and the switch is one small write to the
// catalog, which names one pair or the other. Nothing has to be copied or deleted key by key, and
// lookups never ask more than one family and one set of files. The price is that rows which are
// written during a merge are written twice.
//
// If the process ends before the switch, the catalog names the old pair, and the next writer drops
// the new family and file because no record names them. If it ends after the switch, the next
// writer drops the old ones for the same reason. The new file is durable before the switch, and the
// switch is durable before the old pair is dropped.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/cursor.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

constexpr size_t kChangesReadAheadBytes = size_t{2} << 20;

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

// A reader opens each newer state of the store anew, which must not take long. So it asks RocksDB
// for every key of a changed table. So do lookups of a table whose changes can't all be read: those
// that meet the damage report it.
void Database::LoadChangedKeys(Family& family) {
  if (read_only() || damaged_) {
    if (family.changed) family.changed_keys.AddAll();
    return;
  }
  uint64_t key_count = 0;
  // More than the filter holds, so it need not be filled first.
  if (db_->GetIntProperty(family.handle, rocksdb::DB::Properties::kEstimateNumKeys, &key_count) &&
      key_count > kChangedKeysMax) {
    return family.changed_keys.AddAll(key_count);
  }
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.readahead_size = kChangesReadAheadBytes;
  const auto it = NewStoreIterator(*db_, family.handle, options);
  std::vector<Key> keys;
  bool readable = true;
  for (it->SeekToFirst(); it->Valid() && readable && !family.changed_keys.has_all(); it->Next()) {
    readable = it->key().size() == kKeyBytes;
    if (readable) keys.push_back(DecodeKey(it->key().data()));
    if (keys.size() < kFetchTaskKeysMax) continue;
    family.changed_keys.Add(keys);
    keys.clear();
  }
  family.changed_keys.Add(keys);
  if (!readable || !it->status().ok()) family.changed_keys.AddAll();
}

// Changed keys that make a merge worth while.
uint64_t Database::ChangesToMerge(const Family& family) const {
  const double share = options_.config.merge_share * static_cast<double>(family.table.row_count);
  return std::max({options_.merge_keys_min, static_cast<uint64_t>(share), uint64_t{1}});
}

uint64_t Database::MergeThreshold(const Family& family) const {
  return std::max(ChangesToMerge(family), family.merge_from.load(std::memory_order_relaxed));
}

void Database::NoteChanges(Family& family) {
  if (options_.config.merge_share == 0 ||
      family.changed_keys.added_count() < MergeThreshold(family) || family.merge_requested)
    return;
  if (!family.merge_requested.exchange(true)) merge_queue_.Request();
}

// A filter that is full counts a key whenever it is written. RocksDB's estimate then decides.
bool Database::IsMergeDue(Family& family) const {
  const uint64_t added = family.changed_keys.added_count();
  if (added < MergeThreshold(family)) return false;
  if (!family.changed_keys.has_all()) return true;
  uint64_t estimate = 0;
  db_->GetIntProperty(family.handle, rocksdb::DB::Properties::kEstimateNumKeys, &estimate);
  const uint64_t wanted = ChangesToMerge(family);
  if (estimate >= wanted) return true;
  family.merge_from = added + wanted - estimate;
  family.merge_requested = false;
  return false;
}

std::vector<std::string> Database::TablesToMerge() const {
  std::vector<std::string> names;
  MutexLock lock(mutex_);
  for (const auto& [name, table] : catalog_.tables) {
    const auto family = families_.find(FamilyIdOf(table));
    if (family != families_.end() && IsMergeDue(*family->second)) names.push_back(name);
  }
  return names;
}

void Database::RetireMerged() { Retire(merge_queue_.TakeRetired()); }

absl::StatusOr<std::unique_ptr<Database::Merge>> Database::BeginMerge(const std::string& table) {
  MutexLock change_lock(change_mutex_);
  auto merge = std::make_unique<Merge>();
  HPS_ASSIGN_OR_RETURN(merge->from, PinTable(table));
  Family& from = merge->from.family();
  // Other merges may have taken hours since the table was found to be due.
  if (!IsMergeDue(from)) return absl::CancelledError("the table has few changes now");
  TableRecord record = from.table;
  record.first_file += std::max<size_t>(record.page_files.size(), 1);
  record.page_files.resize(1);  // the file to be made, so that it is known
  merge->path = PageFilePath(path(), record.incarnation, record.first_file);
  HPS_RETURN_IF_ERROR(
      CheckRoomFor(from.pages->table->file_bytes() + ChangeBytes(*db_, from.handle)));
  HPS_FAULT_POINT("l3.merge.before_family");
  HPS_RETURN_IF_ERROR(MakeDirectories(env(), PagesDirectory(path())));
  HPS_RETURN_IF_ERROR(RemoveFile(env(), merge->path));  // of a merge that failed
  HPS_ASSIGN_OR_RETURN(const auto handles, CreateFamilies({record}));
  {
    MutexLock lock(mutex_);
    Family& to = AddFamily(record, handles.front());
    to.current = false;
    ++to.pins;
    merge->to = Pin(shared_from_this(), &to);
  }
  HPS_FAULT_POINT("l3.merge.after_family");
  MutexLock write_lock(from.write_mutex);
  if (!from.current) return absl::CancelledError("the table was replaced");
  merge->changes = MakeChangeCursor(merge->from.Share());
  from.successor = &merge->to.family();
  return merge;
}

absl::Status Database::SwitchMerged(Merge& merge, const PageFileDescription& file,
                                    const std::function<void(const Pin&)>& on_switch) {
  MutexLock change_lock(change_mutex_);
  Family& from = merge.from.family();
  TableRecord record = merge.to.family().table;
  record.row_count = file.row_count;
  record.page_files.clear();
  if (file.row_count > 0)
    record.page_files.push_back({file.row_count, file.first_key, file.last_key});
  HPS_ASSIGN_OR_RETURN(auto pages, OpenPagesOf(record));
  if (pages->table->is_impaired()) {
    return absl::UnavailableError(absl::StrCat("store '", path(), "': '", merge.path,
                                               "' can't be read, although it was just written"));
  }
  HPS_FAULT_POINT("l3.merge.before_switch");
  // As in a drop: the switch is what frees the old files.
  SpaceReserve::Loan room = reserve_.Lend();
  absl::Status written;
  {
    MutexLock write_lock(from.write_mutex);
    if (!from.current) return absl::CancelledError("the table was replaced");
    bool is_visible = false;
    written = WriteMerged(record, is_visible);
    if (!is_visible) return written;
    {
      // Tables that are opened from now on write to the new family: after this.
      MutexLock new_write_lock(merge.to.family().write_mutex);
      ApplyMerge(merge, record, std::move(pages));
      ForgetChanges(from, merge.to.family());
    }
    from.room = std::move(room);
    on_switch(merge.to);
  }
  NoteTablesChanged();
  HPS_FAULT_POINT("l3.merge.after_switch");
  return written;
}

// After an error of the disk, the switch may be visible all the same. Does not check the space: the
// few bytes free more than they take.
absl::Status Database::WriteMerged(const TableRecord& record, bool& is_visible) {
  const std::string& name = record.spec.name;
  rocksdb::WriteBatch batch;
  PutTable(batch, record);
  HPS_RETURN_IF_ERROR(EnsureHealthy());
  const auto commit = [&]() -> absl::Status {
    HPS_FAULT_POINT("l3.merge.in_switch");
    return Commit(batch, true);
  };
  const absl::Status written = commit();
  is_visible = written.ok();
  if (is_visible) return written;
  const absl::StatusOr<CatalogContents> in_rocks = ReadCatalog(*db_);
  is_visible = in_rocks.ok() && in_rocks->tables.contains(name) &&
               FamilyIdOf(in_rocks->tables.at(name)) == FamilyIdOf(record);
  if (!is_visible) {
    MutexLock lock(mutex_);
    unconfirmed_switches_.push_back(record);
  }
  return written;
}

void Database::ApplyMerge(Merge& merge, const TableRecord& record,
                          std::shared_ptr<const FamilyPages> pages) {
  Family& from = merge.from.family();
  Family& to = merge.to.family();
  MutexLock lock(mutex_);
  TableRecord& current = catalog_.tables[record.spec.name];
  current.row_count = record.row_count;
  current.page_files = record.page_files;
  current.first_file = record.first_file;
  to.table = record;
  to.pages = std::move(pages);
  to.current = true;
  from.merged = true;
  from.current = false;
  from.successor = nullptr;
}

// Without changes since the beginning of the merge, processes that open the store read-only need
// not ask RocksDB. The record may be deleted later than the switch, or stay after an error.
// REQUIRES: the write mutexes of both are held, and nothing was written to `to` alone.
void Database::ForgetChanges(const Family& from, Family& to) {
  if (to.changed) {
    // If all writes were refused, there is no record. The next write makes one, again or not.
    to.changed = from.changed.load();
    return;
  }
  rocksdb::WriteBatch batch;
  DeleteChanged(batch, to.table.incarnation);
  const absl::Status written = Write(batch, false);
  if (!written.ok()) LogWarning(absl::StrCat("store '", path(), "': ", written.ToString()));
}

bool Database::EndMerge(Merge& merge) {
  merge.changes.reset();
  if (!merge.is_switched()) {
    if (!ConfirmNoSwitch(merge)) return false;
    MutexLock write_lock(merge.from.family().write_mutex);
    MutexLock lock(mutex_);
    merge.from.family().successor = nullptr;
  }
  merge.to = Pin();
  merge.from = Pin();
  return true;
}

// If a switch is in the log, the process ends, and the log is replayed, the new family is current.
// So the new family gets all writes until the old record is behind the switch in the log. False: it
// is not yet.
bool Database::ConfirmNoSwitch(const Merge& merge) {
  const FamilyId id = FamilyIdOf(merge.to.family().table);
  const auto is_unconfirmed = [&] {
    MutexLock lock(mutex_);
    return IsUnconfirmed(id);
  };
  if (!is_unconfirmed()) return true;
  MutexLock change_lock(change_mutex_);
  if (const absl::Status undone = DropLeftovers(); !undone.ok()) LogWarning(undone.ToString());
  return !is_unconfirmed();
}

// The new family stays open to the end, because writes go on.
void Database::LeaveMerge(Merge& merge) {
  MutexLock lock(mutex_);
  merge.to.family().current = true;
}

}  // namespace hps
