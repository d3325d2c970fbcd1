#include "l3_rocksdb/files/wal_error_shield.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "l3_rocksdb/status.h"

namespace hps {

using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;
using rocksdb::FSSequentialFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr char kManifestPrefix[] = "MANIFEST-";

struct BufferedWal {
  BufferedWal(std::string log_path, std::unique_ptr<FSWritableFile> log_file)
      : path(std::move(log_path)), file(std::move(log_file)) {}

  bool AnyPending() const HPS_REQUIRES(mutex) {
    return !unwritten.empty() || flush_pending || sync_pending;
  }

  const std::string path;
  Mutex mutex;
  const std::unique_ptr<FSWritableFile> file;
  uint64_t written_bytes HPS_GUARDED_BY(mutex) = 0;  // written successfully, from the start
  std::string unwritten HPS_GUARDED_BY(mutex);       // the bytes after them
  // After a failed write the position of the file is unknown, so later writes give an offset.
  bool positioned_writes HPS_GUARDED_BY(mutex) = false;
  bool flush_pending HPS_GUARDED_BY(mutex) = false;
  bool sync_pending HPS_GUARDED_BY(mutex) = false;
  uint64_t synced_bytes HPS_GUARDED_BY(mutex) = 0;
  bool directory_synced HPS_GUARDED_BY(mutex) = false;  // since the file was created
  bool closed HPS_GUARDED_BY(mutex) = false;            // by RocksDB
};

namespace {

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Writes and flushes what is pending for `log`. Does not sync.
IOStatus WritePending(BufferedWal& log) HPS_REQUIRES(log.mutex) {
  if (!log.unwritten.empty()) {
    const IOStatus status =
        log.file->PositionedAppend(log.unwritten, log.written_bytes, IOOptions(), nullptr);
    if (!status.ok()) return status;
    log.written_bytes += log.unwritten.size();
    log.unwritten.clear();
  }
  if (log.flush_pending) {
    const IOStatus status = log.file->Flush(IOOptions(), nullptr);
    if (!status.ok()) return status;
    log.flush_pending = false;
  }
  return IOStatus::OK();
}

IOStatus SyncFile(BufferedWal& log) HPS_REQUIRES(log.mutex) {
  IOStatus status = WritePending(log);
  if (!status.ok()) return status;
  if (log.synced_bytes == log.written_bytes && !log.sync_pending) return status;
  status = log.file->Sync(IOOptions(), nullptr);
  log.sync_pending = !status.ok();
  if (status.ok()) log.synced_bytes = log.written_bytes;
  return status;
}

// A WAL file that reports every operation as successful.
class ShieldedWalFile final : public rocksdb::FSWritableFileWrapper {
 public:
  ShieldedWalFile(std::shared_ptr<BufferedWal> log, WalErrorShield* disk)
      : FSWritableFileWrapper(log->file.get()), log_(std::move(log)), disk_(disk) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    if (!log_->unwritten.empty()) {
      log_->unwritten.append(data.data(), data.size());
      return IOStatus::OK();
    }
    const IOStatus status = log_->positioned_writes ? target()->PositionedAppend(
                                                          data, log_->written_bytes, options, debug)
                                                    : target()->Append(data, options, debug);
    if (status.ok()) {
      log_->written_bytes += data.size();
      return status;
    }
    log_->positioned_writes = true;
    log_->unwritten.assign(data.data(), data.size());
    return Mask(status);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    const IOStatus status = target()->Flush(options, debug);
    if (status.ok()) return status;
    log_->flush_pending = true;
    return Mask(status);
  }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    MutexLock lock(log_->mutex);
    return Synced(SyncFile(*log_));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Sync(options, debug);
  }
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    return Synced(target()->RangeSync(offset, bytes, options, debug));
  }
  // RocksDB is done with the file. If something is pending for it, the file stays open.
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    log_->closed = true;
    if (log_->AnyPending()) return IOStatus::OK();
    disk_->Forget(log_->path);
    return disk_->Downgrade(target()->Close(options, debug));
  }

 private:
  IOStatus Synced(const IOStatus& status) HPS_REQUIRES(log_->mutex) {
    if (status.ok()) return status;
    log_->sync_pending = true;
    disk_->NoteSyncFailure();
    return Mask(status);
  }
  IOStatus Mask(const IOStatus& status) {
    LogError(absl::StrCat("store: '", log_->path, "': ", status.ToString()));
    disk_->NoteError();
    return IOStatus::OK();
  }

  const std::shared_ptr<BufferedWal> log_;
  WalErrorShield* const disk_;
};

class DowngradingWritableFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  DowngradingWritableFile(std::unique_ptr<FSWritableFile> file, bool is_manifest,
                          WalErrorShield* disk)
      : FSWritableFileOwnerWrapper(std::move(file)), is_manifest_(is_manifest), disk_(disk) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    const IOStatus flushed = is_manifest_ ? disk_->Flush() : IOStatus::OK();
    return Downgrade(flushed.ok() ? target()->Append(data, options, debug) : flushed);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* debug) override {
    return Downgrade(target()->PositionedAppend(data, offset, options, debug));
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    return Downgrade(target()->Truncate(size, options, debug));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return Downgrade(target()->Close(options, debug));
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    return Downgrade(target()->Flush(options, debug));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Downgrade(target()->Sync(options, debug));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Downgrade(target()->Fsync(options, debug));
  }
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* debug) override {
    return Downgrade(target()->RangeSync(offset, bytes, options, debug));
  }

 private:
  IOStatus Downgrade(IOStatus status) const {
    if (is_manifest_ && !status.ok()) disk_->NoteManifestUnconfirmed();
    return WalErrorShield::Downgrade(std::move(status));
  }

  const bool is_manifest_;
  WalErrorShield* const disk_;
};

class DowngradingSequentialFile final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  DowngradingSequentialFile(std::unique_ptr<FSSequentialFile> file, const WalErrorShield* disk)
      : FSSequentialFileOwnerWrapper(std::move(file)), disk_(disk) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) override {
    return disk_->Downgrade(target()->Read(n, options, result, scratch, debug));
  }

 private:
  const WalErrorShield* const disk_;
};

class DowngradingRandomAccessFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  DowngradingRandomAccessFile(std::unique_ptr<FSRandomAccessFile> file, const WalErrorShield* disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), disk_(disk) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    return disk_->Downgrade(target()->Read(offset, n, options, result, scratch, debug));
  }
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override {
    for (size_t i = 0; i < count; ++i) requests[i].status = IOStatus::OK();
    const IOStatus status = target()->MultiRead(requests, count, options, debug);
    for (size_t i = 0; i < count; ++i)
      requests[i].status = disk_->Downgrade(std::move(requests[i].status));
    return disk_->Downgrade(status);
  }

 private:
  const WalErrorShield* const disk_;
};

// A directory that is opened when it is first synced, if opening it earlier failed. If RocksDB
// cannot open the directory of a new column family, it leaves half of the family behind, and the
// next write of a MANIFEST ends the process.
class DowngradingDirectory final : public FSDirectory {
 public:
  DowngradingDirectory(std::string path, WalErrorShield* disk)
      : path_(std::move(path)), disk_(disk) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return FsyncWithDirOptions(options, debug, rocksdb::DirFsyncOptions());
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& directory_options) override {
    MutexLock lock(mutex_);
    IOStatus status = OpenLocked(options, debug);
    if (status.ok()) status = real_->FsyncWithDirOptions(options, debug, directory_options);
    const bool names_manifest =
        directory_options.reason == rocksdb::DirFsyncOptions::FsyncReason::kFileRenamed &&
        NameOf(directory_options.renamed_new_name) == "CURRENT";
    if (names_manifest && status.ok()) disk_->NoteManifestConfirmed();
    return WalErrorShield::Downgrade(status);
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(mutex_);
    return real_ == nullptr ? IOStatus::OK() : real_->Close(options, debug);
  }

  IOStatus Open(const IOOptions& options, IODebugContext* debug) {
    MutexLock lock(mutex_);
    return OpenLocked(options, debug);
  }

 private:
  IOStatus OpenLocked(const IOOptions& options, IODebugContext* debug) HPS_REQUIRES(mutex_) {
    if (real_ != nullptr) return IOStatus::OK();
    return disk_->target()->NewDirectory(path_, options, &real_, debug);
  }

  const std::string path_;
  WalErrorShield* const disk_;
  Mutex mutex_;
  std::unique_ptr<FSDirectory> real_ HPS_GUARDED_BY(mutex_);
};

}  // namespace

IOStatus WalErrorShield::Downgrade(IOStatus status) {
  if (status.ok()) return status;
  status.SetRetryable(false);
  status.SetDataLoss(false);
  status.SetScope(IOStatus::IOErrorScope::kIOErrorScopeFileSystem);
  return status;
}

WalErrorShield::WalErrorShield(const std::shared_ptr<rocksdb::FileSystem>& target)
    : FileSystemWrapper(target) {}

WalErrorShield::~WalErrorShield() = default;

std::vector<std::shared_ptr<BufferedWal>> WalErrorShield::Logs() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<BufferedWal>> logs;
  for (const auto& [path, log] : logs_) logs.push_back(log);
  return logs;
}

void WalErrorShield::Forget(const std::string& path) {
  MutexLock lock(mutex_);
  logs_.erase(path);
}

IOStatus WalErrorShield::SyncLog(BufferedWal& log) {
  MutexLock lock(log.mutex);
  if (log.written_bytes == 0 && !log.AnyPending()) return IOStatus::OK();
  IOStatus status = SyncFile(log);
  if (status.ok() && !log.directory_synced) {
    std::unique_ptr<FSDirectory> directory;
    const std::string path = std::filesystem::path(log.path).parent_path().string();
    status = target()->NewDirectory(path, IOOptions(), &directory, nullptr);
    if (status.ok()) status = directory->Fsync(IOOptions(), nullptr);
    log.directory_synced = status.ok();
  }
  if (status.ok()) return status;
  log.sync_pending = true;
  NoteSyncFailure();
  NoteError();
  return status;
}

IOStatus WalErrorShield::SyncLogs() {
  for (const std::shared_ptr<BufferedWal>& log : Logs()) {
    const IOStatus status = SyncLog(*log);
    if (!status.ok()) return Downgrade(status);
  }
  return IOStatus::OK();
}

IOStatus WalErrorShield::Flush() {
  if (!pending()) return IOStatus::OK();
  const uint64_t error_count = error_count_.load();  // later errors count separately
  IOStatus failed;
  for (const std::shared_ptr<BufferedWal>& log : Logs()) {
    MutexLock lock(log->mutex);
    const IOStatus status = log->sync_pending ? SyncFile(*log) : WritePending(*log);
    if (!status.ok()) {
      failed = status;
    } else if (log->closed) {
      const IOStatus closed = log->file->Close(IOOptions(), nullptr);
      if (!closed.ok()) LogError(absl::StrCat("store: '", log->path, "': ", closed.ToString()));
      Forget(log->path);
    }
  }
  if (failed.ok()) flushed_count_.store(error_count);
  return Downgrade(failed);
}

IOStatus WalErrorShield::NewSequentialFile(const std::string& path, const FileOptions& options,
                                           std::unique_ptr<FSSequentialFile>* file,
                                           IODebugContext* debug) {
  std::unique_ptr<FSSequentialFile> real;
  IOStatus status = Downgrade(target()->NewSequentialFile(path, options, &real, debug));
  if (status.ok()) *file = std::make_unique<DowngradingSequentialFile>(std::move(real), this);
  return status;
}

IOStatus WalErrorShield::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                             std::unique_ptr<FSRandomAccessFile>* file,
                                             IODebugContext* debug) {
  std::unique_ptr<FSRandomAccessFile> real;
  IOStatus status = Downgrade(target()->NewRandomAccessFile(path, options, &real, debug));
  if (status.ok()) *file = std::make_unique<DowngradingRandomAccessFile>(std::move(real), this);
  return status;
}

IOStatus WalErrorShield::NewWritableFile(const std::string& path, const FileOptions& options,
                                         std::unique_ptr<FSWritableFile>* file,
                                         IODebugContext* debug) {
  const std::string name = NameOf(path);
  const bool is_manifest = name.starts_with(kManifestPrefix);
  if (is_manifest) NoteManifestUnconfirmed();
  std::unique_ptr<FSWritableFile> real;
  IOStatus status = Downgrade(target()->NewWritableFile(path, options, &real, debug));
  if (!status.ok()) return status;
  if (name.ends_with(".log")) {
    const auto log = std::make_shared<BufferedWal>(path, std::move(real));
    *file = std::make_unique<ShieldedWalFile>(log, this);
    MutexLock lock(mutex_);
    logs_[path] = log;
  } else {
    *file = std::make_unique<DowngradingWritableFile>(std::move(real), is_manifest, this);
  }
  return status;
}

IOStatus WalErrorShield::NewDirectory(const std::string& path, const IOOptions& options,
                                      std::unique_ptr<FSDirectory>* directory,
                                      IODebugContext* debug) {
  auto directory_file = std::make_unique<DowngradingDirectory>(path, this);
  const IOStatus opened = directory_file->Open(options, debug);
  if (!opened.ok()) LogError(absl::StrCat("store: opening '", path, "': ", opened.ToString()));
  *directory = std::move(directory_file);
  return IOStatus::OK();
}

// The store has created its directory before. See DowngradingDirectory for why errors are hidden.
IOStatus WalErrorShield::CreateDirIfMissing(const std::string& path, const IOOptions& options,
                                            IODebugContext* debug) {
  const IOStatus made = target()->CreateDirIfMissing(path, options, debug);
  if (!made.ok()) LogError(absl::StrCat("store: creating '", path, "': ", made.ToString()));
  return IOStatus::OK();
}

IOStatus WalErrorShield::DeleteFile(const std::string& path, const IOOptions& options,
                                    IODebugContext* debug) {
  if (DefersDelete(path)) return IOStatus::OK();
  Forget(path);  // the WAL file and what is pending for it are obsolete
  return Downgrade(target()->DeleteFile(path, options, debug));
}

bool WalErrorShield::DefersDelete(const std::string& path) {
  const std::string name = NameOf(path);
  if (!name.starts_with(kManifestPrefix) && !name.ends_with(".sst")) return false;
  MutexLock lock(mutex_);
  if (manifest_unconfirmed_) deferred_deletes_.push_back(path);
  return manifest_unconfirmed_;
}

void WalErrorShield::NoteManifestUnconfirmed() {
  MutexLock lock(mutex_);
  manifest_unconfirmed_ = true;
}

void WalErrorShield::NoteManifestConfirmed() {
  std::vector<std::string> deferred;
  {
    MutexLock lock(mutex_);
    manifest_unconfirmed_ = false;
    deferred.swap(deferred_deletes_);
  }
  for (const std::string& path : deferred) {
    const IOStatus deleted = target()->DeleteFile(path, IOOptions(), nullptr);
    if (!deleted.ok() && !IsGone(deleted))
      LogWarning(absl::StrCat("store: '", path, "' was not deleted: ", deleted.ToString()));
  }
}

IOStatus WalErrorShield::RenameFile(const std::string& from, const std::string& to,
                                    const IOOptions& options, IODebugContext* debug) {
  return Downgrade(target()->RenameFile(from, to, options, debug));
}

IOStatus WalErrorShield::LinkFile(const std::string& from, const std::string& to,
                                  const IOOptions& options, IODebugContext* debug) {
  return Downgrade(target()->LinkFile(from, to, options, debug));
}

IOStatus WalErrorShield::GetFileSize(const std::string& path, const IOOptions& options,
                                     uint64_t* size, IODebugContext* debug) {
  return Downgrade(target()->GetFileSize(path, options, size, debug));
}

IOStatus WalErrorShield::GetChildren(const std::string& path, const IOOptions& options,
                                     std::vector<std::string>* names, IODebugContext* debug) {
  return Downgrade(target()->GetChildren(path, options, names, debug));
}

}  // namespace hps
