#include "l3_rocksdb/rocks_store.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import/bulk_import.h"
#include "l3_rocksdb/import/import_commit.h"
#include "l3_rocksdb/store_table.h"

namespace hps {
namespace {

// What tells two states of a column family apart.
struct FamilyFiles {
  uint64_t memory_rows = 0;
  std::map<std::string, rocksdb::SequenceNumber> newest{};  // of what each file holds
};

FamilyFiles FilesOf(const Database::Pin& pin) {
  rocksdb::DB& db = pin.database().db();
  rocksdb::ColumnFamilyHandle* const handle = pin.family().handle;
  FamilyFiles files;
  db.GetIntProperty(handle, rocksdb::DB::Properties::kNumEntriesActiveMemTable, &files.memory_rows);
  rocksdb::ColumnFamilyMetaData family;
  db.GetColumnFamilyMetaData(handle, &family);
  for (const rocksdb::LevelMetaData& level : family.levels) {
    for (const rocksdb::SstFileMetaData& file : level.files)
      files.newest[file.name] = file.largest_seqno;
  }
  return files;
}

// Whether all that has happened is that memory became files: those of before are there, and what
// came holds nothing newer than `seen`. A compaction is another matter: it may set the numbers of
// newer rows to zero, and leaves nothing of what was deleted.
bool OnlyFlushed(const FamilyFiles& before, const FamilyFiles& after,
                 rocksdb::SequenceNumber seen) {
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

// Whether two states of one incarnation have the same rows; it may say no where they do.
bool SameRows(const Database::Pin& older, const Database::Pin& newer) {
  if (!newer.family().changed) return true;
  const rocksdb::SequenceNumber seen = older.database().db().GetLatestSequenceNumber();
  // Nothing was written, whatever has become of the files.
  if (newer.database().db().GetLatestSequenceNumber() == seen) return true;
  const FamilyFiles before = FilesOf(older);
  const FamilyFiles after = FilesOf(newer);
  if (before.memory_rows == after.memory_rows && before.newest == after.newest) return true;
  return OnlyFlushed(before, after, seen);
}

// The incarnations of `older` that have other rows in `newer`.
std::set<Incarnation> ChangedSince(Database& older, Database& newer) {
  std::set<Incarnation> changed;
  for (const auto& [name, table] : older.catalog().tables) {
    const absl::StatusOr<Database::Pin> mine = older.PinTable(name);
    const absl::StatusOr<Database::Pin> others = newer.PinTable(name);
    if (!mine.ok() || !others.ok()) continue;
    if (others->family().table.incarnation != table.incarnation) continue;
    if (!SameRows(*mine, *others)) changed.insert(table.incarnation);
  }
  return changed;
}

class RocksStore final : public DurableStore {
 public:
  explicit RocksStore(std::shared_ptr<Database> database) : database_(std::move(database)) {
    if (const ReaderFileSystem* files = database_->reader_files()) seen_ = files->state();
  }

  absl::StatusOr<std::vector<TableInfo>> Tables() const override;
  absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(
      std::span<const TableSpec> specs) override;
  absl::Status Drop(const std::string& name) override;
  absl::StatusOr<bool> Refresh() override;
  std::vector<RejectedImport> TakeRejectedImports(const std::string& model) override;
  absl::Status Sync() override { return database()->Sync(); }
  DurableStatistics Statistics() const override { return database()->Statistics(); }

 private:
  std::shared_ptr<Database> database() const {
    MutexLock lock(mutex_);
    return database_;
  }
  absl::Status CheckWritable(std::string_view what) const;
  absl::StatusOr<bool> CatchUp() HPS_REQUIRES(refresh_mutex_);
  void MoveSources(const std::set<Incarnation>& changed) HPS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<Database> database_ HPS_GUARDED_BY(mutex_);  // replaced when read-only
  // Of the tables that are open, read-only; all of them read from database_.
  std::map<Incarnation, std::weak_ptr<StoreTableSource>> sources_ HPS_GUARDED_BY(mutex_);
  Mutex refresh_mutex_;  // one refresh at a time; taken before mutex_
  // When last looked at, read-only: what has changed since in database_ is not in it.
  ReaderFileSystem::State seen_ HPS_GUARDED_BY(refresh_mutex_);
};

absl::Status RocksStore::CheckWritable(std::string_view what) const {
  const std::shared_ptr<Database> current = database();
  if (!current->read_only()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "store '", current->path(), "' is open read-only: ", std::string(what), " is refused"));
}

absl::StatusOr<std::vector<TableInfo>> RocksStore::Tables() const {
  const std::shared_ptr<Database> current = database();
  const CatalogContents catalog = current->catalog();
  std::vector<TableInfo> infos;
  for (const TableRecord* table : catalog.InOrder()) {
    absl::StatusOr<Database::Pin> pin = current->PinTable(table->spec.name);
    if (absl::IsNotFound(pin.status())) continue;  // dropped since
    HPS_RETURN_IF_ERROR(pin.status());
    infos.push_back(InfoOf(*current, pin->family()));
    infos.back().model_version = table->model_version;
  }
  return infos;
}

absl::StatusOr<std::unique_ptr<DurableTable>> RocksStore::OpenTable(const std::string& name) {
  MutexLock lock(mutex_);
  HPS_ASSIGN_OR_RETURN(Database::Pin pin, database_->PinTable(name));
  if (!database_->read_only())
    return std::make_unique<RocksTable>(std::make_shared<StoreTableSource>(std::move(pin), false));
  std::weak_ptr<StoreTableSource>& known = sources_[pin.family().table.incarnation];
  std::shared_ptr<StoreTableSource> source = known.lock();
  if (source == nullptr) {
    source = std::make_shared<StoreTableSource>(std::move(pin), true);
    known = source;
  }
  return std::make_unique<RocksTable>(std::move(source));
}

absl::StatusOr<std::unique_ptr<BulkImport>> RocksStore::BeginImport(
    std::span<const TableSpec> specs) {
  HPS_RETURN_IF_ERROR(CheckWritable("an import"));
  const std::shared_ptr<Database> current = database();
  return RocksImport::Begin(current, current->options(), specs);
}

absl::Status RocksStore::Drop(const std::string& name) {
  HPS_RETURN_IF_ERROR(CheckWritable("dropping a table"));
  return DropAfterStaged(*database(), name);
}

absl::StatusOr<bool> RocksStore::Refresh() {
  MutexLock lock(refresh_mutex_);
  const std::shared_ptr<Database> current = database();
  return current->read_only() ? CatchUp() : CommitReadyImports(*current);
}

std::vector<RejectedImport> RocksStore::TakeRejectedImports(const std::string& model) {
  const std::shared_ptr<Database> current = database();
  MutexLock lock(current->change_mutex());
  return current->lost_imports().Take(model);
}

// A reader is a state of the store. Tables that were opened from the old one read from the new one
// where their rows are the same, and keep the old one where they are not.
absl::StatusOr<bool> RocksStore::CatchUp() {
  const std::shared_ptr<Database> current = database();
  HPS_ASSIGN_OR_RETURN(const ReaderFileSystem::State now, current->reader_files()->StateNow());
  if (now == seen_) return false;
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<Database> reopened, Database::OpenAgain(*current));
  seen_ = reopened->reader_files()->state();
  const std::set<Incarnation> changed = ChangedSince(*current, *reopened);
  const bool same = changed.empty() && reopened->catalog().SameTables(current->catalog());
  // Also to a state of the same rows: the files of the old one may have been replaced.
  MutexLock lock(mutex_);
  database_ = std::move(reopened);
  MoveSources(changed);
  return !same;
}

void RocksStore::MoveSources(const std::set<Incarnation>& changed) {
  std::map<Incarnation, std::string> names;
  const CatalogContents catalog = database_->catalog();
  for (const auto& [name, table] : catalog.tables) names[table.incarnation] = name;
  std::map<Incarnation, std::weak_ptr<StoreTableSource>> kept;
  for (const auto& [incarnation, known] : sources_) {
    const std::shared_ptr<StoreTableSource> source = known.lock();
    if (source == nullptr) continue;
    const auto name = names.find(incarnation);
    const bool stays = name != names.end() && !changed.contains(incarnation);
    absl::StatusOr<Database::Pin> pin;
    if (stays) pin = database_->PinTable(name->second);
    if (!stays || !pin.ok()) {
      source->Outdate();
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
    // A staged import that can't be taken now is no reason not to serve what is there.
    const absl::Status committed = CommitReadyImports(*database).status();
    if (!committed.ok()) {
      LogError(absl::StrCat("store '", options.config.path,
                            "': staged imports: ", committed.ToString()));
    }
  }
  return std::make_unique<RocksStore>(std::move(database));
}

absl::StatusOr<std::unique_ptr<BulkImport>> StageImport(const RocksStoreOptions& options,
                                                        std::span<const TableSpec> specs) {
  return RocksImport::Begin(nullptr, options, specs);
}

absl::StatusOr<std::vector<PendingImport>> ListPendingImports(const RocksStoreOptions& options) {
  return ListReadyImports(options.env != nullptr ? options.env : rocksdb::Env::Default(),
                          options.config.path);
}

}  // namespace hps
