#include "l3_rocksdb/database.h"

#include <rocksdb/convenience.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/files/log_syncer.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/files/parallel_reads.h"
#include "l3_rocksdb/files/store_env.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/snapshot.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/verify/damage_log.h"
#include "types/names.h"

namespace hps {
namespace {

// A writer changes its files a few times per second. Opening them takes milliseconds.
constexpr Duration kReaderTimeout = std::chrono::seconds(10);
// RocksDB's timer thread, and one more thread for each of the two kinds of background work.
constexpr size_t kRocksOtherThreads = 3;

// Starts RocksDB's threads for flushes and compactions, which all databases of the process share.
// RocksDB itself starts missing threads when there is work for them, maybe on a background thread,
// where a failure ends the process. Throws std::system_error.
void StartBackgroundThreads(const rocksdb::DBOptions& options) {
  // The same division as RocksDB's.
  const int flush_threads = std::max(1, options.max_background_jobs / 4);
  const int compaction_threads = std::max(1, options.max_background_jobs - flush_threads);
  for (const auto& [priority, threads] : {std::pair(rocksdb::Env::HIGH, flush_threads),
                                          std::pair(rocksdb::Env::LOW, compaction_threads)}) {
    options.env->IncBackgroundThreadsIfNeeded(threads, priority);
    // If an earlier attempt failed, RocksDB may know the number but lack the threads.
    options.env->Schedule([](void*) {}, nullptr, priority);
  }
}

std::string WithDigits(const char* prefix, Incarnation incarnation) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%013" PRIx64, incarnation);
  return std::string(prefix) + digits;
}

}  // namespace

std::string FamilyName(const FamilyId& id) {
  std::string name = WithDigits(kRowFamilyPrefix, id.incarnation);
  if (id.first_file != 0) absl::StrAppend(&name, "-", id.first_file);
  return name;
}

std::string NetworkFamilyName(Incarnation id) { return WithDigits(kNetworkFamilyPrefix, id); }

std::optional<Incarnation> IncarnationOf(const std::string& family) {
  FamilyId id;
  const std::string digits =
      family.starts_with(kRowFamilyPrefix) ? family.substr(sizeof(kRowFamilyPrefix) - 1) : "";
  if (std::sscanf(digits.c_str(), "%" SCNx64 "-%" SCNu64, &id.incarnation, &id.first_file) < 1)
    return std::nullopt;
  if (FamilyName(id) != family) return std::nullopt;
  return id.incarnation;
}

Database::Database(const RocksStoreOptions& options, bool damaged,
                   const RocksOptions& rocks_options)
    : options_(options),
      damaged_(damaged),
      rocks_options_(rocks_options),
      space_(EnvOf(options), options.config.path, options.config.free_bytes_min),
      reserve_(EnvOf(options), options.config.path, space_),
      background_errors_(std::make_shared<BackgroundErrors>()) {}

Database::~Database() {
  syncer_.reset();
  if (db_ == nullptr) return;
  if (!read_only()) {
    // Earlier writes survive the end of the process. The sync lets them also survive a power cut
    // after a clean end.
    const absl::Status synced = Sync();
    if (!synced.ok())
      LogError(absl::StrCat("store '", path(), "': the last sync failed: ", synced.ToString()));
    if (opened_) {
      // A flush that ended after the mark could be cut from the MANIFEST undetected.
      rocksdb::CancelAllBackgroundWork(db_.get(), true);
      const absl::Status marked = WriteManifestMark(*db_, path());
      if (!marked.ok()) LogWarning(marked.ToString());
    }
  }
  {
    MutexLock lock(mutex_);
    for (auto& [id, family] : families_) db_->DestroyColumnFamilyHandle(family->handle);
    families_.clear();
    for (const auto& family : merge_queue_.TakeRetired())
      db_->DestroyColumnFamilyHandle(family->handle);
    for (rocksdb::ColumnFamilyHandle* handle : leftovers_) db_->DestroyColumnFamilyHandle(handle);
  }
  for (rocksdb::ColumnFamilyHandle* handle : opened_handles_)
    db_->DestroyColumnFamilyHandle(handle);
  const rocksdb::Status closed = db_->Close();
  if (!closed.ok())
    LogError(absl::StrCat("store '", path(), "': closing failed: ", closed.ToString()));
  db_.reset();
}

absl::StatusOr<std::shared_ptr<Database>> Database::Open(const RocksStoreOptions& options) {
  return OpenNew(options, false, RocksOptions(options), nullptr);
}

absl::StatusOr<std::shared_ptr<Database>> Database::Reopen(const Database& former) {
  HPS_CHECK(former.read_only());
  return OpenNew(former.options(), former.damaged_, former.rocks_options_, &former);
}

absl::StatusOr<std::shared_ptr<Database>> Database::OpenDamaged(const RocksStoreOptions& options) {
  return OpenNew(options, true, RocksOptions(options), nullptr);
}

// A reader begins again if a table was replaced while it opened the store.
absl::StatusOr<std::shared_ptr<Database>> Database::OpenNew(const RocksStoreOptions& options,
                                                            bool damaged,
                                                            const RocksOptions& rocks_options,
                                                            const Database* former) {
  const Deadline deadline = DeadlineAfter(RealClock(), kReaderTimeout);
  std::set<FamilyId> replaced;
  for (;;) {
    std::shared_ptr<Database> database(new Database(options, damaged, rocks_options));
    database->replaced_ = replaced;
    if (former != nullptr) {
      MutexLock former_lock(former->page_reader_mutex_);
      MutexLock lock(database->page_reader_mutex_);
      database->page_reader_ = former->page_reader_;
    }
    const absl::Status opened = database->OpenAll(former);
    if (opened.ok()) return database;
    if (database->replaced_.size() == replaced.size() || RealClock().Now() >= deadline)
      return opened;
    replaced = database->replaced_;
  }
}

absl::Status Database::OpenAll(const Database* former) {
  HPS_RETURN_IF_ERROR(OpenFiles(former));
  HPS_RETURN_IF_ERROR(LoadTables(former));
  opened_ = true;
  if (read_only()) return absl::OkStatus();
  const absl::Status removed = RemoveUnfinishedSnapshots(env(), path());
  if (!removed.ok()) LogWarning(absl::StrCat("store '", path(), "': ", removed.ToString()));
  // Not of a store with damage: its catalog may lack a table.
  if (!damaged_) {
    HPS_RETURN_IF_ERROR(DropUnknownFamilies());
    const absl::Status left = RemoveUnknownPageFiles();
    if (!left.ok()) LogWarning(absl::StrCat("store '", path(), "': ", left.ToString()));
  }
  NoteTablesChanged();
  reserve_.Ensure();
  if (options_.config.sync != SyncMode::kInterval) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(syncer_,
                       LogSyncer::Create([this] { return Sync(); }, options_.config.sync_interval));
  return absl::OkStatus();
}

absl::Status Database::OpenReaderFiles(const Database* former) {
  HPS_ASSIGN_OR_RETURN(reader_files_, ReaderFileSystem::Take(
                                          FileSystemOf(options_.env), path(),
                                          former == nullptr ? nullptr : former->reader_files_.get(),
                                          DeadlineAfter(RealClock(), kReaderTimeout)));
  reader_env_ = NewStoreEnv(reader_files_);
  return absl::OkStatus();
}

absl::Status Database::Lock() {
  HPS_ASSIGN_OR_RETURN(
      OwnerLock lock,
      OwnerLock::Take(path(), options_.role, DeadlineAfter(RealClock(), options_.lock_timeout)));
  lock_ = std::make_unique<OwnerLock>(std::move(lock));
  return absl::OkStatus();
}

absl::Status Database::OpenFiles(const Database* former) {
  HPS_ASSIGN_OR_RETURN(const StoreFiles found, FindStore(env(), path()));
  if (found == StoreFiles::kNone && options_.mode != OpenMode::kCreate)
    return absl::NotFoundError(absl::StrCat("there is no store at '", path(), "'"));
  if (!read_only() && found == StoreFiles::kNone) {
    HPS_RETURN_IF_ERROR(MakeDirectories(env(), path()));
    HPS_RETURN_IF_ERROR(CheckRoomFor(0));
  }
  HPS_RETURN_IF_ERROR(StartThreads());
  // A store without its lock file, as a snapshot, has no writer, and gets the file if it is opened.
  const bool checks_before_lock =
      !read_only() && found == StoreFiles::kStore && !OwnerLock::FileExists(path());
  if (checks_before_lock) HPS_RETURN_IF_ERROR(CheckStoreFormat());
  HPS_RETURN_IF_ERROR(read_only() ? OpenReaderFiles(former) : Lock());
  // Checked again: another process may have created the store meanwhile.
  HPS_ASSIGN_OR_RETURN(const StoreFiles files, FindStore(env(), path()));
  std::vector<std::string> families = {rocksdb::kDefaultColumnFamilyName};
  if (files == StoreFiles::kStore) {
    if (!damaged_) HPS_RETURN_IF_ERROR(CheckManifestMark(env(), path()));
    rocksdb::DBOptions db_options = rocks_options_.database();
    db_options.env = env();
    const rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(db_options, path(), &families);
    HPS_RETURN_IF_ERROR(OpenError(listed, path()));
    if (!read_only() && !checks_before_lock) HPS_RETURN_IF_ERROR(CheckStoreFormat());
  }
  if (!read_only()) {
    const absl::Status removed = RemoveTemporaryFiles(env(), path());
    if (!removed.ok()) LogWarning(absl::StrCat("store '", path(), "': ", removed.ToString()));
  }
  HPS_ASSIGN_OR_RETURN(rocksdb::Status opened, OpenRocks(families));
  if (IsNoSpace(opened) && !read_only()) {
    // Opening needs some space, and tables can be dropped only from an open store.
    const SpaceReserve::Loan room = reserve_.Lend();
    HPS_ASSIGN_OR_RETURN(opened, OpenRocks(families));
  }
  return OpenError(opened, path());
}

// Reads the format without changing a byte of the store. To open it for writing would change some,
// so a store of another format would not stay as it is. Costs one reading of the log.
absl::Status Database::CheckStoreFormat() const {
  rocksdb::DBOptions db_options = rocks_options_.database();
  db_options.env = env();
  db_options.paranoid_checks = !damaged_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(
      db_options, path(), {{rocksdb::kDefaultColumnFamilyName, rocks_options_.catalog()}}, &handles,
      &opened);
  HPS_RETURN_IF_ERROR(OpenError(status, path()));
  const std::unique_ptr<rocksdb::DB> db(opened);
  const absl::Status format = CheckFormat(*db);
  for (rocksdb::ColumnFamilyHandle* handle : handles) db->DestroyColumnFamilyHandle(handle);
  return format.ok() ? format : InStore(format);
}

// If RocksDB cannot start its threads, it throws and never closes the files that it has opened. So
// this function starts as many threads first.
absl::Status Database::CheckThreadsCanStart() const {
  const rocksdb::DBOptions db_options = rocks_options_.database();
  const auto thread_count =
      static_cast<size_t>(db_options.max_file_opening_threads + db_options.max_background_jobs) +
      kRocksOtherThreads;
  const absl::Status tried =
      WorkerPool::Create({.name = "hps-try", .thread_count = thread_count, .queue_max = 1})
          .status();
  if (tried.ok()) return tried;
  return absl::Status(tried.code(), absl::StrCat("store '", path(), "': opening needs ",
                                                 thread_count, " threads: ", tried.message()));
}

// Call this before RocksDB opens the store.
absl::Status Database::StartThreads() const {
  HPS_RETURN_IF_ERROR(CheckThreadsCanStart());
  rocksdb::DBOptions db_options = rocks_options_.database();
  db_options.env = env();
  try {
    StartBackgroundThreads(db_options);
  } catch (const std::system_error& error) {
    return NoThread(error);
  }
  return absl::OkStatus();
}

absl::StatusOr<rocksdb::Status> Database::OpenRocks(const std::vector<std::string>& families) {
  rocksdb::DBOptions db_options = rocks_options_.database();
  db_options.listeners = {background_errors_};
  db_options.paranoid_checks = !damaged_;
  db_options.create_if_missing = options_.mode == OpenMode::kCreate;
  if (read_only()) {
    // A secondary instance does not work here: it takes a damaged table file for one that does not
    // exist yet, and shows an older state.
    db_options.env = reader_env_.get();
  } else {
    wal_shield_ = std::make_shared<WalErrorShield>(FileSystemOf(options_.env));
    file_system_env_ = NewStoreEnv(wal_shield_);
    db_options.env = file_system_env_.get();
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const std::string& name : families) {
    const bool rows = name.starts_with(kRowFamilyPrefix);
    descriptors.emplace_back(name, rows ? rocks_options_.rows() : rocks_options_.catalog());
    // A compaction that reads damage would end all writing, also that of a repair.
    descriptors.back().options.disable_auto_compactions = damaged_;
  }
  rocksdb::DB* db = nullptr;
  try {
    rocksdb::Status opened =
        read_only()
            ? rocksdb::DB::OpenForReadOnly(db_options, path(), descriptors, &opened_handles_, &db)
            : rocksdb::DB::Open(db_options, path(), descriptors, &opened_handles_, &db);
    db_.reset(db);
    return opened;
  } catch (const std::system_error& error) {
    return NoThread(error);
  }
}

// std::thread reports it in this way only.
absl::Status Database::NoThread(const std::system_error& error) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("store '", path(), "': opening failed: can't start a thread: ", error.what()));
}

absl::Status Database::LoadTables(const Database* former) {
  absl::StatusOr<CatalogContents> contents = ReadCatalog(*db_);
  if (!contents.ok()) return InStore(contents.status());
  if (contents->format_version == 0 && !read_only()) {
    rocksdb::WriteBatch batch;
    PutFormat(batch);
    HPS_RETURN_IF_ERROR(Write(batch, true));
    contents->format_version = kStoreFormatVersion;
  }
  std::map<std::string, rocksdb::ColumnFamilyHandle*> handles;
  for (rocksdb::ColumnFamilyHandle* handle : opened_handles_) handles[handle->GetName()] = handle;
  opened_handles_.clear();
  absl::Status loaded = absl::OkStatus();
  MutexLock lock(mutex_);
  for (const auto& [name, table] : contents->tables) {
    const auto found = handles.find(FamilyName(FamilyIdOf(table)));
    if (found == handles.end()) {
      if (damaged_) continue;
      loaded.Update(absl::DataLossError(absl::StrCat("store '", path(), "': the rows of table '",
                                                     name, "' are missing (column family ",
                                                     FamilyName(FamilyIdOf(table)), ")")));
      continue;
    }
    Family& family = AddFamily(table, found->second);
    family.changed = contents->incarnations[table.incarnation].changed;
    handles.erase(found);
    loaded.Update(LoadPages(family, former));
    LoadChangedKeys(family);
  }
  TakeNetworkFamilies(*contents, handles);
  for (const auto& [name, handle] : handles) opened_handles_.push_back(handle);
  catalog_ = *std::move(contents);
  return loaded;
}

absl::StatusOr<std::shared_ptr<const FamilyPages>> Database::OpenPagesOf(const TableRecord& table) {
  std::shared_ptr<PageReader> reader;
  {
    MutexLock lock(page_reader_mutex_);
    if (page_reader_ == nullptr) {
      const uint64_t cache_bytes = options_.config.cache_bytes;
      HPS_ASSIGN_OR_RETURN(
          std::unique_ptr<PageReader> made,
          PageReader::Create({.cache_bytes = cache_bytes - BlockCacheBytes(cache_bytes)}));
      page_reader_ = std::move(made);
    }
    reader = page_reader_;
  }
  return OpenPages(path(), table, options_.direct_reads, reader);
}

// A reader's state of the store may be older than the files: the writer removes those of tables
// that it has replaced. A file that is missing although the state is the newest is lost.
absl::Status Database::LoadPages(Family& family, const Database* former) {
  if (former != nullptr) {
    MutexLock lock(former->mutex_);
    const auto known = former->families_.find(FamilyIdOf(family.table));
    if (known != former->families_.end()) family.pages = known->second->pages;
    if (family.pages != nullptr) return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(CheckNotReplaced(family.table));
  HPS_ASSIGN_OR_RETURN(family.pages, OpenPagesOf(family.table));
  // Opening takes long, so the files may have been removed meanwhile.
  return CheckNotReplaced(family.table);
}

absl::Status Database::CheckNotReplaced(const TableRecord& table) {
  if (!read_only() || damaged_ || !AnyPageFileIsMissing(path(), table)) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const ReaderFileSystem::State now, reader_files_->StateNow());
  if (now == reader_files_->state() || !replaced_.insert(FamilyIdOf(table)).second)
    return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("store '", path(), "': table '", table.spec.name,
                   "' was replaced while the store was being opened; try again"));
}

// A network without a family is lost: Network() says so, and the tables and the other networks can
// be read.
void Database::TakeNetworkFamilies(const CatalogContents& contents,
                                   std::map<std::string, rocksdb::ColumnFamilyHandle*>& handles) {
  for (const auto& [model, network] : contents.networks) {
    const auto found = handles.find(NetworkFamilyName(network.id));
    if (found == handles.end()) continue;
    AddFamily({.incarnation = network.id}, found->second);
    handles.erase(found);
  }
}

absl::Status Database::DropUnknownFamilies() {
  std::vector<rocksdb::ColumnFamilyHandle*> handles = std::move(opened_handles_);
  opened_handles_.clear();
  rocksdb::WriteBatch batch;
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    if (handle->GetName() == rocksdb::kDefaultColumnFamilyName) {
      db_->DestroyColumnFamilyHandle(handle);
      continue;
    }
    // Left over from an import that did not switch, or from a replaced table.
    DropFamilies({handle});
  }
  {
    MutexLock lock(mutex_);
    for (auto it = catalog_.incarnations.begin(); it != catalog_.incarnations.end();) {
      if (AnyFamilyOf(it->first)) {
        ++it;
        continue;
      }
      HPS_RETURN_IF_ERROR(DeleteIncarnation(*db_, batch, it->first));
      it = catalog_.incarnations.erase(it);
    }
  }
  return batch.Count() == 0 ? absl::OkStatus() : Commit(batch, false);
}

Family& Database::AddFamily(const TableRecord& table, rocksdb::ColumnFamilyHandle* handle) {
  auto family = std::make_unique<Family>();
  family->handle = handle;
  family->table = table;
  return *(families_[FamilyIdOf(table)] = std::move(family));
}

CatalogContents Database::catalog() const {
  MutexLock lock(mutex_);
  return catalog_;
}

// A family that the catalog no longer names; null: it has readers, or there is none.
std::unique_ptr<Family> Database::TakeReplaced(const FamilyId& id) {
  const auto found = families_.find(id);
  if (found == families_.end()) return nullptr;
  found->second->current = false;
  if (Family* const successor = found->second->successor) successor->CancelMerge();
  return TakeUnpinned(found->second.get());
}

absl::StatusOr<Database::Pin> Database::PinTable(const std::string& name) {
  MutexLock lock(mutex_);
  const auto table = catalog_.tables.find(name);
  if (table == catalog_.tables.end()) {
    std::vector<std::string> names;
    for (const auto& [known, record] : catalog_.tables) names.push_back(known);
    return absl::NotFoundError(absl::StrCat("store '", path(), "' has no table '", name, "'",
                                            NearestNameHint(name, names)));
  }
  const auto found = families_.find(FamilyIdOf(table->second));
  if (found == families_.end()) {
    return absl::DataLossError(
        absl::StrCat("store '", path(), "': the rows of table '", name, "' are missing"));
  }
  Family* family = found->second.get();
  ++family->pins;
  return Pin(shared_from_this(), family);
}

Database::Pin Database::Pin::Share() const {
  MutexLock lock(database_->mutex_);
  ++family_->pins;
  return Pin(database_, family_);
}

void Database::Unpin(Family* family) {
  std::unique_ptr<Family> unused;
  {
    MutexLock lock(mutex_);
    HPS_CHECK(family->pins > 0);
    --family->pins;
    unused = TakeUnpinned(family);
  }
  if (unused == nullptr) return;
  if (unused->merged) return merge_queue_.Retire(std::move(unused));
  RetireOne(std::move(unused));
}

std::unique_ptr<Family> Database::TakeUnpinned(Family* family) {
  if (family->pins > 0 || family->current) return nullptr;
  const auto found = families_.find(FamilyIdOf(family->table));
  std::unique_ptr<Family> taken = std::move(found->second);
  families_.erase(found);
  return taken;
}

DurableStatistics Database::Statistics() const {
  DurableStatistics statistics;
  statistics.damaged_reads = DamageReportCount();
  statistics.free_bytes = space_.FreeBytes().value_or(0);
  statistics.background_errors = background_errors_->count();
  statistics.writable = !read_only() && healthy();
  statistics.read_only = read_only();
  statistics.merges = merge_queue_.merges;
  statistics.merged_bytes = merge_queue_.merged_bytes;
  statistics.merges_failed = merge_queue_.merges_failed;
  return statistics;
}

}  // namespace hps
