#include "l3_rocksdb/rocks_store.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/public_message.h"
#include "l3_rocksdb/change_merger.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/staging.h"
#include "l3_rocksdb/import_commit.h"
#include "l3_rocksdb/snapshot.h"
#include "l3_rocksdb/store_import.h"
#include "l3_rocksdb/store_table.h"

namespace hps {
namespace {

constexpr size_t kSourcesMin = 64;

// Compared to tell whether two states of a column family differ.
struct TableFiles {
  uint64_t memory_rows = 0;
  std::map<std::string, rocksdb::SequenceNumber> newest{};  // sequence number per file
};

TableFiles FilesOf(const FamilyPin& pin) {
  rocksdb::DB& db = pin.database().db();
  rocksdb::ColumnFamilyHandle* const handle = pin.family().handle;
  TableFiles files;
  db.GetIntProperty(handle, rocksdb::DB::Properties::kNumEntriesActiveMemTable, &files.memory_rows);
  rocksdb::ColumnFamilyMetaData family;
  db.GetColumnFamilyMetaData(handle, &family);
  for (const rocksdb::LevelMetaData& level : family.levels) {
    for (const rocksdb::SstFileMetaData& file : level.files)
      files.newest[file.name] = file.largest_seqno;
  }
  return files;
}

// True if the only change is that memtables were flushed: all earlier files exist, and no new file
// holds a sequence number above `seen`. A compaction returns false: it may set sequence numbers of
// newer rows to zero, and it removes deleted keys without a trace.
bool OnlyFlushed(const TableFiles& before, const TableFiles& after, rocksdb::SequenceNumber seen) {
  if (after.memory_rows > 0) return false;
  size_t known_count = 0;
  for (const auto& [name, newest] : after.newest) {
    if (before.newest.contains(name)) {
      ++known_count;
    } else if (newest == 0 || newest > seen) {
      return false;
    }
  }
  return known_count == before.newest.size();
}

// True if two states of one incarnation have the same rows. False negatives are possible.
bool SameRows(const FamilyPin& older, const FamilyPin& newer) {
  // After a merge, the new files may have changes that the older state lacks.
  if (FamilyIdOf(older.family().table) != FamilyIdOf(newer.family().table)) return false;
  if (!newer.family().changed) return true;
  const rocksdb::SequenceNumber seen = older.database().db().GetLatestSequenceNumber();
  // Nothing was written, even if files have changed.
  if (newer.database().db().GetLatestSequenceNumber() == seen) return true;
  const TableFiles before = FilesOf(older);
  const TableFiles after = FilesOf(newer);
  if (before.memory_rows == after.memory_rows && before.newest == after.newest) return true;
  return OnlyFlushed(before, after, seen);
}

// The incarnations of `older` whose rows differ in `newer`.
std::set<Incarnation> ChangedSince(Database& older, Database& newer) {
  std::set<Incarnation> changed;
  for (const auto& [name, table] : older.catalog().contents().tables) {
    const absl::StatusOr<FamilyPin> mine = older.catalog().PinTable(name);
    const absl::StatusOr<FamilyPin> others = newer.catalog().PinTable(name);
    if (!mine.ok() || !others.ok()) continue;
    if (others->family().table.incarnation != table.incarnation) continue;
    if (!SameRows(*mine, *others)) changed.insert(table.incarnation);
  }
  return changed;
}

class RocksStore final : public DurableStore {
 public:
  explicit RocksStore(std::shared_ptr<Database> database) : database_(std::move(database)) {
    if (const ReaderFileSystem* files = database_->store().reader_files()) seen_ = files->state();
  }
  // Of a server: begins to merge changes. Errors: RESOURCE_EXHAUSTED (no thread).
  absl::Status StartMerging();

  absl::StatusOr<std::vector<TableInfo>> Tables() const override;
  absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) override;
  absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string& model) const override {
    return database()->catalog().Network(model);
  }
  absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(
      std::span<const TableSpec> specs) override;
  absl::Status Drop(const std::string& name) override;
  absl::StatusOr<RefreshResult> Refresh() override;
  std::vector<RejectedImport> TakeRejectedImports(const std::string& model) override;
  absl::StatusOr<uint64_t> Snapshot(const std::string& name) override;
  absl::Status Sync() override { return database()->writer().Sync(); }
  DurableStatistics Statistics() const override { return database()->Statistics(); }

 private:
  std::shared_ptr<Database> database() const {
    MutexLock lock(mutex_);
    return database_;
  }
  absl::Status CheckWritable(std::string_view what) const;
  absl::StatusOr<bool> CatchUp() HPS_REQUIRES(refresh_mutex_);
  void MoveSources(const std::set<Incarnation>& changed) HPS_REQUIRES(mutex_);
  void MoveSource(const FamilyPin& merged);

  mutable Mutex mutex_;
  std::shared_ptr<Database> database_ HPS_GUARDED_BY(mutex_);  // replaced when read-only
  // The sources of the open tables. In a read-only store, all of them read from database_.
  std::map<Incarnation, std::weak_ptr<StoreTableSource>> sources_ HPS_GUARDED_BY(mutex_);
  size_t sources_max_ HPS_GUARDED_BY(mutex_) = kSourcesMin;  // more: those of closed tables go
  Mutex snapshot_mutex_;                                     // one snapshot at a time
  Mutex refresh_mutex_;  // one refresh at a time; acquired before mutex_
  // Read-only stores: the state of database_.
  ReaderFileSystem::State seen_ HPS_GUARDED_BY(refresh_mutex_);
  std::unique_ptr<ChangeMerger> merger_;  // null if there is none; destroyed first
};

absl::Status RocksStore::StartMerging() {
  HPS_ASSIGN_OR_RETURN(
      merger_, ChangeMerger::Start(database(), [this](const FamilyPin& pin) { MoveSource(pin); }));
  return absl::OkStatus();
}

// The table has new page files, with the same rows.
void RocksStore::MoveSource(const FamilyPin& merged) {
  std::shared_ptr<StoreTableSource> source;
  {
    MutexLock lock(mutex_);
    const auto known = sources_.find(merged.family().table.incarnation);
    if (known != sources_.end()) source = known->second.lock();
  }
  if (source != nullptr) source->MoveTo(merged.Share());
}

absl::Status RocksStore::CheckWritable(std::string_view what) const {
  const std::shared_ptr<Database> current = database();
  if (!current->read_only()) return absl::OkStatus();
  return Public(absl::FailedPreconditionError(
      absl::StrCat("the store is open read-only: ", std::string(what), " is refused")));
}

absl::StatusOr<std::vector<TableInfo>> RocksStore::Tables() const {
  const std::shared_ptr<Database> current = database();
  const CatalogContents catalog = current->catalog().contents();
  std::vector<TableInfo> infos;
  for (const TableRecord* table : catalog.InOrder()) {
    absl::StatusOr<FamilyPin> pin = current->catalog().PinTable(table->spec.name);
    if (absl::IsNotFound(pin.status())) continue;  // dropped meanwhile
    HPS_RETURN_IF_ERROR(pin.status());
    infos.push_back(InfoOf(*current, pin->family()));
    // An import that was committed meanwhile has a record of its own.
    const TableRecord& pinned = pin->family().table;
    const TableRecord& record = table->incarnation == pinned.incarnation ? *table : pinned;
    infos.back().model_version = record.model_version;
    infos.back().update_start = record.update_start;
    infos.back().update_records_lost = record.update_records_lost;
  }
  return infos;
}

absl::StatusOr<std::unique_ptr<DurableTable>> RocksStore::OpenTable(const std::string& name) {
  MutexLock lock(mutex_);
  HPS_ASSIGN_OR_RETURN(FamilyPin pin, database_->catalog().PinTable(name));
  if (sources_.size() > sources_max_) {
    std::erase_if(sources_, [](const auto& source) { return source.second.expired(); });
    sources_max_ = 2 * sources_.size() + kSourcesMin;
  }
  std::weak_ptr<StoreTableSource>& known = sources_[pin.family().table.incarnation];
  std::shared_ptr<StoreTableSource> source = known.lock();
  if (source == nullptr) {
    source = std::make_shared<StoreTableSource>(std::move(pin));
    known = source;
  }
  return std::make_unique<RocksTable>(std::move(source));
}

absl::StatusOr<std::unique_ptr<BulkImport>> RocksStore::BeginImport(
    std::span<const TableSpec> specs) {
  HPS_RETURN_IF_ERROR(CheckWritable("an import"));
  const std::shared_ptr<Database> current = database();
  return BeginStoreImport(current, current->store().options(), specs);
}

absl::Status RocksStore::Drop(const std::string& name) {
  HPS_RETURN_IF_ERROR(CheckWritable("dropping a table"));
  return DropAfterStaged(*database(), name);
}

absl::StatusOr<RefreshResult> RocksStore::Refresh() {
  MutexLock lock(refresh_mutex_);
  const std::shared_ptr<Database> current = database();
  if (!current->read_only()) return CommitReadyImports(*current);
  HPS_ASSIGN_OR_RETURN(const bool changed, CatchUp());
  return RefreshResult{.changed = changed};
}

std::vector<RejectedImport> RocksStore::TakeRejectedImports(const std::string& model) {
  const std::shared_ptr<Database> current = database();
  MutexLock lock(current->change_mutex());
  return current->rejected_imports().Take(model);
}

absl::StatusOr<uint64_t> RocksStore::Snapshot(const std::string& name) {
  HPS_RETURN_IF_ERROR(CheckWritable("a snapshot"));
  if (!snapshot_mutex_.TryLock()) {
    return Public(absl::FailedPreconditionError("another snapshot of the store is being made"));
  }
  absl::StatusOr<uint64_t> bytes = MakeSnapshot(*database(), name);
  snapshot_mutex_.Unlock();
  return bytes;
}

// A reader's database is one state of the store. Open tables move to the new state if their rows
// are the same there, and otherwise keep the old one.
absl::StatusOr<bool> RocksStore::CatchUp() {
  const std::shared_ptr<Database> current = database();
  HPS_ASSIGN_OR_RETURN(const ReaderFileSystem::State now,
                       current->store().reader_files()->StateNow());
  if (now == seen_) return false;
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<Database> reopened, Database::Reopen(*current));
  seen_ = reopened->store().reader_files()->state();
  const std::set<Incarnation> changed = ChangedSince(*current, *reopened);
  const bool same =
      changed.empty() && reopened->catalog().contents().SameTables(current->catalog().contents());
  // Done even if all rows are the same: the writer may have replaced the files of the old state.
  MutexLock lock(mutex_);
  database_ = std::move(reopened);
  MoveSources(changed);
  return !same;
}

void RocksStore::MoveSources(const std::set<Incarnation>& changed) {
  std::map<Incarnation, std::string> names;
  const CatalogContents catalog = database_->catalog().contents();
  for (const auto& [name, table] : catalog.tables) names[table.incarnation] = name;
  std::map<Incarnation, std::weak_ptr<StoreTableSource>> kept;
  for (const auto& [incarnation, known] : sources_) {
    const std::shared_ptr<StoreTableSource> source = known.lock();
    if (source == nullptr) continue;
    const auto name = names.find(incarnation);
    const bool stays = name != names.end() && !changed.contains(incarnation);
    absl::StatusOr<FamilyPin> pin;
    if (stays) pin = database_->catalog().PinTable(name->second);
    if (!stays || !pin.ok()) {
      source->MarkOutdated();
      continue;
    }
    source->MoveTo(*std::move(pin));
    kept[incarnation] = source;
  }
  sources_ = std::move(kept);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DurableStore>> OpenRocksStore(const RocksStoreOptions& options) {
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<Database> database, Database::Open(options));
  if (options.mode != OpenMode::kReadOnly) {
    // A staged import that cannot be committed now does not prevent serving the current tables.
    const absl::Status committed = CommitReadyImports(*database).status();
    if (!committed.ok()) {
      LogError(absl::StrCat("store '", options.config.path,
                            "': committing staged imports: ", committed.ToString()));
    }
  }
  auto store = std::make_unique<RocksStore>(std::move(database));
  const bool merges = options.mode != OpenMode::kReadOnly && options.role == OwnerRole::kServer &&
                      options.config.merge_share > 0;
  if (merges) HPS_RETURN_IF_ERROR(store->StartMerging());
  return store;
}

absl::StatusOr<std::unique_ptr<BulkImport>> StageImport(const RocksStoreOptions& options,
                                                        std::span<const TableSpec> specs) {
  return BeginStoreImport(nullptr, options, specs);
}

absl::StatusOr<std::vector<PendingImport>> ListPendingImports(const RocksStoreOptions& options) {
  return ListReadyImports(options.env != nullptr ? options.env : rocksdb::Env::Default(),
                          options.config.path);
}

}  // namespace hps
