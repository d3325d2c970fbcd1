#include "l3_rocksdb/files/store_file_system.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "l3_rocksdb/import/staged_file.h"

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

struct KeptLog {
  KeptLog(std::string log_path, std::unique_ptr<FSWritableFile> log_file)
      : path(std::move(log_path)), file(std::move(log_file)) {}

  bool Owes() const HPS_REQUIRES(mutex) { return !unwritten.empty() || flush_owed || sync_owed; }

  const std::string path;
  Mutex mutex;
  const std::unique_ptr<FSWritableFile> file;
  uint64_t written_bytes HPS_GUARDED_BY(mutex) = 0;  // from the start, surely
  std::string unwritten HPS_GUARDED_BY(mutex);       // what follows them
  // After a failed write the file's own position may be anywhere: writes name theirs then.
  bool names_positions HPS_GUARDED_BY(mutex) = false;
  bool flush_owed HPS_GUARDED_BY(mutex) = false;
  bool sync_owed HPS_GUARDED_BY(mutex) = false;
  uint64_t synced_bytes HPS_GUARDED_BY(mutex) = 0;
  bool directory_synced HPS_GUARDED_BY(mutex) = false;  // since the file was made
  bool closed HPS_GUARDED_BY(mutex) = false;            // by RocksDB
};

namespace {

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Writes what is owed to `log`, but for a sync.
IOStatus WriteOwed(KeptLog& log) HPS_REQUIRES(log.mutex) {
  if (!log.unwritten.empty()) {
    const IOStatus status =
        log.file->PositionedAppend(log.unwritten, log.written_bytes, IOOptions(), nullptr);
    if (!status.ok()) return status;
    log.written_bytes += log.unwritten.size();
    log.unwritten.clear();
  }
  if (log.flush_owed) {
    const IOStatus status = log.file->Flush(IOOptions(), nullptr);
    if (!status.ok()) return status;
    log.flush_owed = false;
  }
  return IOStatus::OK();
}

IOStatus SyncFile(KeptLog& log) HPS_REQUIRES(log.mutex) {
  IOStatus status = WriteOwed(log);
  if (!status.ok()) return status;
  if (log.synced_bytes == log.written_bytes && !log.sync_owed) return status;
  status = log.file->Sync(IOOptions(), nullptr);
  log.sync_owed = !status.ok();
  if (status.ok()) log.synced_bytes = log.written_bytes;
  return status;
}

// A write-ahead log that never fails.
class LogFile final : public rocksdb::FSWritableFileWrapper {
 public:
  LogFile(std::shared_ptr<KeptLog> log, StoreFileSystem* disk)
      : FSWritableFileWrapper(log->file.get()), log_(std::move(log)), disk_(disk) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    if (!log_->unwritten.empty()) {
      log_->unwritten.append(data.data(), data.size());
      return IOStatus::OK();
    }
    const IOStatus status = log_->names_positions ? target()->PositionedAppend(
                                                        data, log_->written_bytes, options, debug)
                                                  : target()->Append(data, options, debug);
    if (status.ok()) {
      log_->written_bytes += data.size();
      return status;
    }
    log_->names_positions = true;
    log_->unwritten.assign(data.data(), data.size());
    return Owe(status);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    const IOStatus status = target()->Flush(options, debug);
    if (status.ok()) return status;
    log_->flush_owed = true;
    return Owe(status);
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
  // What is owed still stays so, with the file; RocksDB is done with it.
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    MutexLock lock(log_->mutex);
    log_->closed = true;
    if (log_->Owes()) return IOStatus::OK();
    disk_->Forget(log_->path);
    return disk_->Passing(target()->Close(options, debug));
  }

 private:
  IOStatus Synced(const IOStatus& status) HPS_REQUIRES(log_->mutex) {
    if (status.ok()) return status;
    log_->sync_owed = true;
    disk_->NoteSyncFailure();
    return Owe(status);
  }
  IOStatus Owe(const IOStatus& status) {
    LogError(absl::StrCat("store: '", log_->path, "': ", status.ToString()));
    disk_->NoteOwing();
    return IOStatus::OK();
  }

  const std::shared_ptr<KeptLog> log_;
  StoreFileSystem* const disk_;
};

class PassingWritableFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  PassingWritableFile(std::unique_ptr<FSWritableFile> file, bool is_manifest, StoreFileSystem* disk)
      : FSWritableFileOwnerWrapper(std::move(file)), is_manifest_(is_manifest), disk_(disk) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    const IOStatus settled = is_manifest_ ? disk_->Settle() : IOStatus::OK();
    return Passing(settled.ok() ? target()->Append(data, options, debug) : settled);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* debug) override {
    return Passing(target()->PositionedAppend(data, offset, options, debug));
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    return Passing(target()->Truncate(size, options, debug));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return Passing(target()->Close(options, debug));
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    return Passing(target()->Flush(options, debug));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Passing(target()->Sync(options, debug));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Passing(target()->Fsync(options, debug));
  }
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* debug) override {
    return Passing(target()->RangeSync(offset, bytes, options, debug));
  }

 private:
  IOStatus Passing(IOStatus status) const {
    if (is_manifest_ && !status.ok()) disk_->NoteManifestInDoubt();
    return StoreFileSystem::Passing(std::move(status));
  }

  const bool is_manifest_;
  StoreFileSystem* const disk_;
};

class PassingSequentialFile final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  PassingSequentialFile(std::unique_ptr<FSSequentialFile> file, const StoreFileSystem* disk)
      : FSSequentialFileOwnerWrapper(std::move(file)), disk_(disk) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) override {
    return disk_->Passing(target()->Read(n, options, result, scratch, debug));
  }

 private:
  const StoreFileSystem* const disk_;
};

class PassingRandomAccessFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  PassingRandomAccessFile(std::unique_ptr<FSRandomAccessFile> file, const StoreFileSystem* disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), disk_(disk) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    return disk_->Passing(target()->Read(offset, n, options, result, scratch, debug));
  }
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override {
    for (size_t i = 0; i < count; ++i) requests[i].status = IOStatus::OK();
    const IOStatus status = target()->MultiRead(requests, count, options, debug);
    for (size_t i = 0; i < count; ++i)
      requests[i].status = disk_->Passing(std::move(requests[i].status));
    return disk_->Passing(status);
  }

 private:
  const StoreFileSystem* const disk_;
};

// Is opened when it is first synced, unless before: RocksDB leaves half a column family behind when
// it can't open its directory, and ends the process when it next writes a MANIFEST.
class PassingDirectory final : public FSDirectory {
 public:
  PassingDirectory(std::string path, StoreFileSystem* disk) : path_(std::move(path)), disk_(disk) {}

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
    if (names_manifest && status.ok()) disk_->NoteManifestNamed();
    return StoreFileSystem::Passing(status);
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
  StoreFileSystem* const disk_;
  Mutex mutex_;
  std::unique_ptr<FSDirectory> real_ HPS_GUARDED_BY(mutex_);
};

}  // namespace

IOStatus StoreFileSystem::Passing(IOStatus status) {
  if (status.ok()) return status;
  status.SetRetryable(false);
  status.SetDataLoss(false);
  status.SetScope(IOStatus::IOErrorScope::kIOErrorScopeFileSystem);
  return status;
}

StoreFileSystem::StoreFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target,
                                 std::string staging)
    : FileSystemWrapper(target), shared_target_(target), staging_(std::move(staging)) {}

StoreFileSystem::~StoreFileSystem() = default;

std::vector<std::shared_ptr<KeptLog>> StoreFileSystem::Logs() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<KeptLog>> logs;
  for (const auto& [path, log] : logs_) logs.push_back(log);
  return logs;
}

void StoreFileSystem::Forget(const std::string& path) {
  MutexLock lock(mutex_);
  logs_.erase(path);
}

IOStatus StoreFileSystem::SyncLog(KeptLog& log) {
  MutexLock lock(log.mutex);
  if (log.written_bytes == 0 && !log.Owes()) return IOStatus::OK();
  IOStatus status = SyncFile(log);
  if (status.ok() && !log.directory_synced) {
    std::unique_ptr<FSDirectory> directory;
    const std::string path = std::filesystem::path(log.path).parent_path().string();
    status = target()->NewDirectory(path, IOOptions(), &directory, nullptr);
    if (status.ok()) status = directory->Fsync(IOOptions(), nullptr);
    log.directory_synced = status.ok();
  }
  if (status.ok()) return status;
  log.sync_owed = true;
  NoteSyncFailure();
  NoteOwing();
  return status;
}

IOStatus StoreFileSystem::SyncLogs() {
  for (const std::shared_ptr<KeptLog>& log : Logs()) {
    const IOStatus status = SyncLog(*log);
    if (!status.ok()) return Passing(status);
  }
  return IOStatus::OK();
}

IOStatus StoreFileSystem::Settle() {
  if (settled()) return IOStatus::OK();
  const uint64_t owing_count = owing_count_.load();  // what fails meanwhile counts anew
  IOStatus failed;
  for (const std::shared_ptr<KeptLog>& log : Logs()) {
    MutexLock lock(log->mutex);
    const IOStatus status = log->sync_owed ? SyncFile(*log) : WriteOwed(*log);
    if (!status.ok()) {
      failed = status;
    } else if (log->closed) {
      const IOStatus closed = log->file->Close(IOOptions(), nullptr);
      if (!closed.ok()) LogError(absl::StrCat("store: '", log->path, "': ", closed.ToString()));
      Forget(log->path);
    }
  }
  if (failed.ok()) settled_count_.store(owing_count);
  return Passing(failed);
}

IOStatus StoreFileSystem::NewSequentialFile(const std::string& path, const FileOptions& options,
                                            std::unique_ptr<FSSequentialFile>* file,
                                            IODebugContext* debug) {
  std::unique_ptr<FSSequentialFile> real;
  IOStatus status = Passing(target()->NewSequentialFile(path, options, &real, debug));
  if (status.ok()) *file = std::make_unique<PassingSequentialFile>(std::move(real), this);
  return status;
}

IOStatus StoreFileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                              std::unique_ptr<FSRandomAccessFile>* file,
                                              IODebugContext* debug) {
  std::unique_ptr<FSRandomAccessFile> real;
  const bool is_staged = path.starts_with(staging_);
  IOStatus status = Passing(is_staged ? OpenStagedFile(shared_target_, path, options, &real)
                                      : target()->NewRandomAccessFile(path, options, &real, debug));
  if (status.ok()) *file = std::make_unique<PassingRandomAccessFile>(std::move(real), this);
  return status;
}

IOStatus StoreFileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                          std::unique_ptr<FSWritableFile>* file,
                                          IODebugContext* debug) {
  const std::string name = NameOf(path);
  const bool is_manifest = name.starts_with(kManifestPrefix);
  if (is_manifest) NoteManifestInDoubt();
  std::unique_ptr<FSWritableFile> real;
  IOStatus status = Passing(target()->NewWritableFile(path, options, &real, debug));
  if (!status.ok()) return status;
  if (name.ends_with(".log")) {
    const auto log = std::make_shared<KeptLog>(path, std::move(real));
    *file = std::make_unique<LogFile>(log, this);
    MutexLock lock(mutex_);
    logs_[path] = log;
  } else {
    *file = std::make_unique<PassingWritableFile>(std::move(real), is_manifest, this);
  }
  return status;
}

IOStatus StoreFileSystem::NewDirectory(const std::string& path, const IOOptions& options,
                                       std::unique_ptr<FSDirectory>* directory,
                                       IODebugContext* debug) {
  auto passing = std::make_unique<PassingDirectory>(path, this);
  const IOStatus opened = passing->Open(options, debug);
  if (!opened.ok()) LogError(absl::StrCat("store: opening '", path, "': ", opened.ToString()));
  *directory = std::move(passing);
  return IOStatus::OK();
}

// The store has made its directory before; see PassingDirectory for the reason.
IOStatus StoreFileSystem::CreateDirIfMissing(const std::string& path, const IOOptions& options,
                                             IODebugContext* debug) {
  const IOStatus made = target()->CreateDirIfMissing(path, options, debug);
  if (!made.ok()) LogError(absl::StrCat("store: making '", path, "': ", made.ToString()));
  return IOStatus::OK();
}

IOStatus StoreFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                     IODebugContext* debug) {
  if (KeepsForManifest(path)) return IOStatus::OK();
  Forget(path);  // nothing needs the log any more, nor what is owed to it
  return Passing(target()->DeleteFile(path, options, debug));
}

bool StoreFileSystem::KeepsForManifest(const std::string& path) {
  const std::string name = NameOf(path);
  if (!name.starts_with(kManifestPrefix) && !name.ends_with(".sst")) return false;
  MutexLock lock(mutex_);
  if (manifest_in_doubt_) undeleted_.push_back(path);
  return manifest_in_doubt_;
}

void StoreFileSystem::NoteManifestInDoubt() {
  MutexLock lock(mutex_);
  manifest_in_doubt_ = true;
}

void StoreFileSystem::NoteManifestNamed() {
  std::vector<std::string> undeleted;
  {
    MutexLock lock(mutex_);
    manifest_in_doubt_ = false;
    undeleted.swap(undeleted_);
  }
  for (const std::string& path : undeleted) {
    const IOStatus deleted = target()->DeleteFile(path, IOOptions(), nullptr);
    if (!deleted.ok() && !deleted.IsNotFound() && !deleted.IsPathNotFound())
      LogWarning(absl::StrCat("store: '", path, "' is left: ", deleted.ToString()));
  }
}

IOStatus StoreFileSystem::RenameFile(const std::string& from, const std::string& to,
                                     const IOOptions& options, IODebugContext* debug) {
  return Passing(target()->RenameFile(from, to, options, debug));
}

IOStatus StoreFileSystem::LinkFile(const std::string& from, const std::string& to,
                                   const IOOptions& options, IODebugContext* debug) {
  return Passing(target()->LinkFile(from, to, options, debug));
}

IOStatus StoreFileSystem::GetFileSize(const std::string& path, const IOOptions& options,
                                      uint64_t* size, IODebugContext* debug) {
  return Passing(target()->GetFileSize(path, options, size, debug));
}

IOStatus StoreFileSystem::GetChildren(const std::string& path, const IOOptions& options,
                                      std::vector<std::string>* names, IODebugContext* debug) {
  return Passing(target()->GetChildren(path, options, names, debug));
}

}  // namespace hps
