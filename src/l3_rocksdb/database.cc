#include "l3_rocksdb/database.h"

#include <rocksdb/convenience.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/snapshot.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"
#include "l3_rocksdb/verify/damage_log.h"

namespace hps {
namespace {

// A reader begins again so often although its time is up: reading a long log takes longer than a
// merge, after which there is less to read.
constexpr int kReaderOpensMin = 3;
constexpr size_t kChangesReadAheadBytes = size_t{2} << 20;

// Fills the filter of changed keys. A reader skips this, because it opens every newer state of the
// store and must open it fast: its lookups ask RocksDB for every key of a changed table. If some
// changes can't be read, lookups of the table ask RocksDB for every key, too, and report the damage
// that they meet.
void LoadChangedKeys(const StoreDb& store, Family& family) {
  if (store.read_only() || store.damaged()) {
    if (family.changed) family.changed_keys.AddAll();
    return;
  }
  uint64_t key_count = 0;
  // More than the filter holds, so it need not be filled first.
  if (store.db().GetIntProperty(family.handle, rocksdb::DB::Properties::kEstimateNumKeys,
                                &key_count) &&
      key_count > kChangedKeysMax) {
    return family.changed_keys.AddAll(key_count);
  }
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.readahead_size = kChangesReadAheadBytes;
  const auto it = NewStoreIterator(store.db(), family.handle, options);
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

}  // namespace

Database::Database(std::unique_ptr<StoreDb> store)
    : store_(std::move(store)),
      families_(*this, *store_),
      writer_(*store_, families_),
      catalog_(*store_, writer_, families_),
      files_(*store_, writer_, families_, catalog_),
      merge_queue_(*store_) {}

Database::~Database() {
  writer_.StopSyncing();
  if (read_only()) return;
  // Earlier writes survive the end of the process. The sync lets them also survive a power cut
  // after a clean end.
  const absl::Status synced = writer_.Sync();
  if (!synced.ok())
    LogError(absl::StrCat("store '", path(), "': the last sync failed: ", synced.ToString()));
  if (!opened_) return;
  // A flush that ended after the mark could be cut from the MANIFEST undetected.
  rocksdb::CancelAllBackgroundWork(&db(), true);
  const absl::Status marked = WriteManifestMark(db(), path());
  if (!marked.ok()) LogWarning(marked.ToString());
}

absl::StatusOr<std::shared_ptr<Database>> Database::Open(const RocksStoreOptions& options) {
  return OpenNew(options, false, nullptr);
}

absl::StatusOr<std::shared_ptr<Database>> Database::Reopen(const Database& former) {
  HPS_CHECK(former.read_only());
  return OpenNew(former.store_->options(), former.store_->damaged(), &former);
}

absl::StatusOr<std::shared_ptr<Database>> Database::OpenDamaged(const RocksStoreOptions& options) {
  return OpenNew(options, true, nullptr);
}

// A reader begins again if a table was replaced while it opened the store.
absl::StatusOr<std::shared_ptr<Database>> Database::OpenNew(const RocksStoreOptions& options,
                                                            bool damaged, const Database* former) {
  const Deadline deadline = DeadlineAfter(RealClock(), StoreDb::kReaderTimeout);
  std::set<FamilyId> replaced;
  for (int opens = 1;; ++opens) {
    const size_t known_count = replaced.size();
    HPS_ASSIGN_OR_RETURN(
        std::unique_ptr<StoreDb> store,
        StoreDb::Open(options, damaged, former == nullptr ? nullptr : former->store_.get()));
    std::shared_ptr<Database> database(new Database(std::move(store)));
    if (former != nullptr) database->SharePages(*former);
    const absl::Status loaded = database->Load(former, replaced);
    if (loaded.ok()) return database;
    const bool may_retry = opens < kReaderOpensMin || RealClock().Now() < deadline;
    if (replaced.size() == known_count || !may_retry) return loaded;
  }
}

void Database::SharePages(const Database& former) {
  MutexLock former_lock(former.page_reader_mutex_);
  MutexLock lock(page_reader_mutex_);
  page_reader_ = former.page_reader_;
}

absl::Status Database::Load(const Database* former, std::set<FamilyId>& replaced) {
  absl::StatusOr<CatalogContents> contents = ReadCatalog(db());
  if (!contents.ok()) return store_->InStore(contents.status());
  if (contents->format_version == 0 && !read_only()) {
    rocksdb::WriteBatch batch;
    PutFormat(batch);
    HPS_RETURN_IF_ERROR(writer_.Write(batch, true));
    contents->format_version = kStoreFormatVersion;
  }
  HPS_RETURN_IF_ERROR(LoadTables(*contents, former, replaced));
  const auto incarnations = std::exchange(contents->incarnations, {});
  catalog_.Load(*std::move(contents));
  opened_ = true;
  if (read_only()) return absl::OkStatus();
  store_->LogIfFailed(RemoveUnfinishedSnapshots(env(), path()));
  // Not of a store with damage: its catalog may lack a table.
  if (!store_->damaged()) HPS_RETURN_IF_ERROR(files_.DropUnknown(incarnations));
  NoteTablesChanged();
  store_->reserve().Ensure();
  return writer_.StartSyncing();
}

absl::Status Database::LoadTables(const CatalogContents& contents, const Database* former,
                                  std::set<FamilyId>& replaced) {
  absl::Status loaded;
  for (const auto& [name, table] : contents.tables) {
    const std::string family_name = FamilyName(FamilyIdOf(table));
    rocksdb::ColumnFamilyHandle* const handle = store_->TakeHandle(family_name);
    if (handle == nullptr) {
      if (store_->damaged()) continue;
      loaded.Update(
          absl::DataLossError(absl::StrCat("store '", path(), "': the rows of table '", name,
                                           "' are missing (column family ", family_name, ")")));
      continue;
    }
    Family& family = families_.Add(table, handle);
    const auto records = contents.incarnations.find(table.incarnation);
    family.changed = records != contents.incarnations.end() && records->second.changed;
    loaded.Update(LoadPages(family, former, replaced));
    LoadChangedKeys(*store_, family);
  }
  // A network without a family is lost: Catalog::Network says so, and the tables and the other
  // networks can be read.
  for (const auto& [model, network] : contents.networks) {
    rocksdb::ColumnFamilyHandle* const handle = store_->TakeHandle(NetworkFamilyName(network.id));
    if (handle != nullptr) families_.Add({.incarnation = network.id}, handle);
  }
  return loaded;
}

absl::StatusOr<std::shared_ptr<const FamilyPages>> Database::OpenPagesOf(const TableRecord& table) {
  std::shared_ptr<PageReader> reader;
  {
    MutexLock lock(page_reader_mutex_);
    if (page_reader_ == nullptr) {
      const uint64_t cache_bytes = store_->options().config.cache_bytes;
      HPS_ASSIGN_OR_RETURN(
          std::unique_ptr<PageReader> made,
          PageReader::Create({.cache_bytes = cache_bytes - BlockCacheBytes(cache_bytes)}));
      page_reader_ = std::move(made);
    }
    reader = page_reader_;
  }
  return OpenPages(path(), table, store_->options().direct_reads, reader);
}

// A reader's state of the store may be older than the files: the writer removes those of tables
// that it has replaced. A file that is missing although the state is the newest is lost.
absl::Status Database::LoadPages(Family& family, const Database* former,
                                 std::set<FamilyId>& replaced) {
  if (former != nullptr) {
    family.pages = former->families_.PagesOf(FamilyIdOf(family.table));
    if (family.pages != nullptr) return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(CheckNotReplaced(family.table, replaced));
  HPS_ASSIGN_OR_RETURN(family.pages, OpenPagesOf(family.table));
  // Opening takes long, so the files may have been removed meanwhile.
  return CheckNotReplaced(family.table, replaced);
}

// `replaced`: tables whose files were not found, but another state of the store. If that has them
// too, their files are lost.
absl::Status Database::CheckNotReplaced(const TableRecord& table, std::set<FamilyId>& replaced) {
  if (!read_only() || store_->damaged() || !AnyPageFileIsMissing(path(), table))
    return absl::OkStatus();
  const ReaderFileSystem& files = *store_->reader_files();
  HPS_ASSIGN_OR_RETURN(const ReaderFileSystem::State now, files.StateNow());
  if (now == files.state() || !replaced.insert(FamilyIdOf(table)).second) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("store '", path(), "': table '", table.spec.name,
                   "' was replaced while the store was being opened; try again"));
}

absl::Status Database::SwitchTables(NewContents contents,
                                    const std::vector<Incarnation>& replaced) {
  const std::vector<rocksdb::ColumnFamilyHandle*> handles = contents.AllHandles();
  Catalog::Outcome outcome{};
  Catalog::Unneeded unneeded;
  const absl::Status written = catalog_.Switch(std::move(contents), replaced, outcome, unneeded);
  switch (outcome) {
    case Catalog::Outcome::kRefused:
      files_.Drop(handles);
      break;
    case Catalog::Outcome::kUnconfirmed:
      files_.DropUnconfirmed(handles);
      break;
    case Catalog::Outcome::kVisible:
      NoteTablesChanged();
      files_.Retire(std::move(unneeded));
  }
  return written;
}

void Database::NoteTablesChanged() {
  // Not on a store with damage. The next regular open does it.
  if (store_->damaged()) return;
  const std::vector<FamilyPin> networks = families_.PinAll(FamilyTable::Kind::kNetwork);
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  for (const FamilyPin& network : networks) families.push_back(network.family().handle);
  families.push_back(db().DefaultColumnFamily());
  absl::Status noted = FromRocksStatus(writer_.Flush(families), "flushing the catalog");
  noted.Update(WriteManifestMark(db(), path()));
  store_->LogIfFailed(noted);
}

absl::Status Database::DropTables(const std::vector<std::string>& names) {
  for (const std::string& name : names) HPS_RETURN_IF_ERROR(catalog_.PinTable(name).status());
  HPS_FAULT_POINT("l3.drop.before_write");
  Catalog::Outcome outcome{};
  Catalog::Unneeded unneeded;
  absl::Status written;
  {
    const SpaceReserve::Loan room = store_->reserve().Lend();
    written = catalog_.Drop(names, outcome, unneeded);
  }
  if (outcome != Catalog::Outcome::kVisible) return written;
  NoteTablesChanged();
  files_.Retire(std::move(unneeded));
  return written;
}

absl::Status Database::DropNetwork(const std::string& model) {
  Catalog::Unneeded unneeded;
  HPS_RETURN_IF_ERROR(catalog_.DropNetwork(model, unneeded));
  NoteTablesChanged();
  files_.Retire(std::move(unneeded));
  return absl::OkStatus();
}

void Database::Unpin(Family* family) {
  std::unique_ptr<Family> unneeded = families_.Unpin(family);
  if (unneeded == nullptr) return;
  if (unneeded->merge.is_done) return merge_queue_.Retire(std::move(unneeded));
  Catalog::Unneeded families;
  families.push_back(std::move(unneeded));
  files_.Retire(std::move(families));
}

DurableStatistics Database::Statistics() const {
  DurableStatistics statistics;
  statistics.damaged_reads = DamageReportCount();
  statistics.free_bytes = store_->space().FreeBytes().value_or(0);
  statistics.background_errors = store_->background_errors().count();
  statistics.writable = !read_only() && writer_.healthy();
  statistics.read_only = read_only();
  statistics.merges = merge_queue_.merges;
  statistics.merged_bytes = merge_queue_.merged_bytes;
  statistics.merges_failed = merge_queue_.merges_failed;
  return statistics;
}

}  // namespace hps
