#include "l3_rocksdb/store_db.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/catalog_records.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/files/parallel_reads.h"
#include "l3_rocksdb/files/store_env.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

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

// std::thread reports it in this way only.
absl::Status NoThread(const std::system_error& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("opening failed: can't start a thread: ", error.what()));
}

// If RocksDB cannot start its threads, it throws and never closes the files that it has opened. So
// this function starts as many threads first.
absl::Status CheckThreadsCanStart(const rocksdb::DBOptions& options) {
  const auto thread_count =
      static_cast<size_t>(options.max_file_opening_threads + options.max_background_jobs) +
      kRocksOtherThreads;
  const absl::Status tried =
      WorkerPool::Create({.name = "hps-try", .thread_count = thread_count, .queue_max = 1})
          .status();
  if (tried.ok()) return tried;
  return {tried.code(),
          absl::StrCat("opening needs ", thread_count, " threads: ", tried.message())};
}

}  // namespace

StoreDb::StoreDb(const RocksStoreOptions& options, bool damaged, const RocksOptions& rocks_options)
    : options_(options),
      damaged_(damaged),
      rocks_options_(rocks_options),
      space_(EnvOf(options), options.config.path, options.config.free_bytes_min),
      reserve_(EnvOf(options), options.config.path, space_),
      background_errors_(std::make_shared<BackgroundErrors>()) {}

StoreDb::~StoreDb() {
  if (db_ == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* handle : TakeHandles()) db_->DestroyColumnFamilyHandle(handle);
  const rocksdb::Status closed = db_->Close();
  if (!closed.ok())
    LogError(absl::StrCat("store '", path(), "': closing failed: ", closed.ToString()));
}

absl::StatusOr<std::unique_ptr<StoreDb>> StoreDb::Open(const RocksStoreOptions& options,
                                                       bool damaged, const StoreDb* former) {
  std::unique_ptr<StoreDb> store(new StoreDb(
      options, damaged, former == nullptr ? RocksOptions(options) : former->rocks_options_));
  HPS_RETURN_IF_ERROR(store->OpenFiles(former));
  return store;
}

absl::Status StoreDb::OpenReaderFiles(const StoreDb* former) {
  HPS_ASSIGN_OR_RETURN(reader_files_, ReaderFileSystem::Take(
                                          FileSystemOf(options_.env), path(),
                                          former == nullptr ? nullptr : former->reader_files_.get(),
                                          DeadlineAfter(RealClock(), kReaderTimeout)));
  reader_env_ = NewStoreEnv(reader_files_);
  return absl::OkStatus();
}

absl::Status StoreDb::Lock() {
  HPS_ASSIGN_OR_RETURN(
      OwnerLock lock,
      OwnerLock::Take(path(), options_.role, DeadlineAfter(RealClock(), options_.lock_timeout)));
  lock_ = std::make_unique<OwnerLock>(std::move(lock));
  return absl::OkStatus();
}

absl::Status StoreDb::OpenFiles(const StoreDb* former) {
  HPS_ASSIGN_OR_RETURN(const StoreFiles found, FindStore(env(), path()));
  if (found == StoreFiles::kNone && options_.mode != OpenMode::kCreate)
    return absl::NotFoundError(absl::StrCat("there is no store at '", path(), "'"));
  if (!read_only() && found == StoreFiles::kNone) {
    HPS_RETURN_IF_ERROR(MakeDirectories(env(), path()));
    HPS_RETURN_IF_ERROR(space_.CheckRoomFor(0));
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
    const rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(DbOptions(), path(), &families);
    HPS_RETURN_IF_ERROR(OpenError(listed, path()));
    if (!read_only() && !checks_before_lock) HPS_RETURN_IF_ERROR(CheckStoreFormat());
  }
  if (!read_only()) LogIfFailed(RemoveTemporaryFiles(env(), path()));
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
absl::Status StoreDb::CheckStoreFormat() const {
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(
      DbOptions(), path(), {{rocksdb::kDefaultColumnFamilyName, rocks_options_.catalog()}},
      &handles, &opened);
  HPS_RETURN_IF_ERROR(OpenError(status, path()));
  const std::unique_ptr<rocksdb::DB> db(opened);
  const absl::Status format = CheckFormat(*db);
  for (rocksdb::ColumnFamilyHandle* handle : handles) db->DestroyColumnFamilyHandle(handle);
  return format.ok() ? format : InStore(format);
}

// Call this before RocksDB opens the store.
absl::Status StoreDb::StartThreads() const {
  const absl::Status can_start = CheckThreadsCanStart(DbOptions());
  if (!can_start.ok()) return InStore(can_start);
  try {
    StartBackgroundThreads(DbOptions());
  } catch (const std::system_error& error) {
    return InStore(NoThread(error));
  }
  return absl::OkStatus();
}

rocksdb::DBOptions StoreDb::DbOptions() const {
  rocksdb::DBOptions options = rocks_options_.database();
  options.env = env();
  options.paranoid_checks = !damaged_;
  return options;
}

absl::StatusOr<rocksdb::Status> StoreDb::OpenRocks(const std::vector<std::string>& families) {
  rocksdb::DBOptions db_options = DbOptions();
  db_options.listeners = {background_errors_};
  db_options.create_if_missing = options_.mode == OpenMode::kCreate;
  if (!read_only()) {
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
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  try {
    // For a reader, a secondary instance does not work: it takes a damaged table file for one that
    // does not exist yet, and shows an older state.
    rocksdb::Status opened =
        read_only() ? rocksdb::DB::OpenForReadOnly(db_options, path(), descriptors, &handles, &db)
                    : rocksdb::DB::Open(db_options, path(), descriptors, &handles, &db);
    db_.reset(db);
    for (rocksdb::ColumnFamilyHandle* handle : handles) handles_[handle->GetName()] = handle;
    return opened;
  } catch (const std::system_error& error) {
    return InStore(NoThread(error));
  }
}

rocksdb::ColumnFamilyHandle* StoreDb::TakeHandle(const std::string& family) {
  const auto found = handles_.extract(family);
  return found.empty() ? nullptr : found.mapped();
}

std::vector<rocksdb::ColumnFamilyHandle*> StoreDb::TakeHandles() {
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  for (const auto& [name, handle] : std::exchange(handles_, {})) handles.push_back(handle);
  return handles;
}

absl::Status StoreDb::InStore(const absl::Status& error) const {
  return {error.code(), absl::StrCat("store '", path(), "': ", error.message())};
}

void StoreDb::LogIfFailed(const absl::Status& status) const {
  if (!status.ok()) LogWarning(absl::StrCat("store '", path(), "': ", status.ToString()));
}

}  // namespace hps
