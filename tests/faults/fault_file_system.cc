#include "tests/faults/fault_file_system.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

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

#define HPS_RETURN_IF_IO_ERROR(expression)                           \
  do {                                                               \
    if (IOStatus status = (expression); !status.ok()) return status; \
  } while (false)

class FaultSequentialFile final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  FaultSequentialFile(std::unique_ptr<FSSequentialFile> file, std::string path,
                      FaultFileSystem* disk)
      : FSSequentialFileOwnerWrapper(std::move(file)), path_(std::move(path)), disk_(disk) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileRead, path_));
    HPS_RETURN_IF_IO_ERROR(target()->Read(n, options, result, scratch, debug));
    disk_->MaybeFlip(path_, result, scratch);
    return IOStatus::OK();
  }

 private:
  const std::string path_;
  FaultFileSystem* const disk_;
};

class FaultRandomAccessFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultRandomAccessFile(std::unique_ptr<FSRandomAccessFile> file, std::string path,
                        FaultFileSystem* disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), path_(std::move(path)), disk_(disk) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileRead, path_));
    HPS_RETURN_IF_IO_ERROR(target()->Read(offset, n, options, result, scratch, debug));
    disk_->MaybeFlip(path_, result, scratch);
    return IOStatus::OK();
  }

  // The base class's versions are made of Read above.
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override {
    return FSRandomAccessFile::MultiRead(requests, count, options, debug);
  }
  IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options,
                     std::function<void(const FSReadRequest&, void*)> done, void* argument,
                     void** handle, rocksdb::IOHandleDeleter* deleter,
                     IODebugContext* debug) override {
    return FSRandomAccessFile::ReadAsync(request, options, std::move(done), argument, handle,
                                         deleter, debug);
  }
  // Read-ahead into the system's cache would only hide reads.
  IOStatus Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported();
  }

 private:
  const std::string path_;
  FaultFileSystem* const disk_;
};

// Appends, and keeps the books on size and synced size.
class FaultWritableFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultWritableFile(std::unique_ptr<FSWritableFile> file, std::string path, uint64_t size,
                    FaultFileSystem* disk)
      : FSWritableFileOwnerWrapper(std::move(file)),
        path_(std::move(path)),
        size_(size),
        disk_(disk) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileAppend, path_));
    const uint64_t fitting = disk_->TakeSpace(data.size());
    HPS_RETURN_IF_IO_ERROR(target()->Append(Slice(data.data(), fitting), options, debug));
    size_ += fitting;
    disk_->NoteSize(path_, size_);
    if (fitting == data.size()) return IOStatus::OK();
    return IOStatus::NoSpace("planned: no space left", path_);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* debug) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileAppend, path_));
    const uint64_t end = offset + data.size();
    const uint64_t growth = end > size_ ? end - size_ : 0;
    if (disk_->TakeSpace(growth) < growth) return IOStatus::NoSpace("planned: no space", path_);
    HPS_RETURN_IF_IO_ERROR(target()->PositionedAppend(data, offset, options, debug));
    size_ += growth;
    disk_->NoteSize(path_, size_);
    return IOStatus::OK();
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileAppend, path_));
    HPS_RETURN_IF_IO_ERROR(target()->Truncate(size, options, debug));
    size_ = size;
    disk_->NoteSize(path_, size_);
    return IOStatus::OK();
  }
  // The real file is closed whatever the plan says: a failed close must not leak a descriptor.
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    const IOStatus planned = disk_->Check(kFileAppend, path_);
    HPS_RETURN_IF_IO_ERROR(target()->Close(options, debug));
    return planned;
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileAppend, path_));
    return target()->Flush(options, debug);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Synced(options, debug, false);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Synced(options, debug, true);
  }
  // A hint to write back early; durable is only what Sync made so.
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return disk_->Check(kFileSync, path_);
  }
  // Preallocation would take space that the budget doesn't see.
  IOStatus Allocate(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

 private:
  IOStatus Synced(const IOOptions& options, IODebugContext* debug, bool fsync) {
    const uint64_t size = size_;
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileSync, path_));
    HPS_RETURN_IF_IO_ERROR(fsync ? target()->Fsync(options, debug)
                                 : target()->Sync(options, debug));
    disk_->NoteSynced(path_, size);
    return IOStatus::OK();
  }

  const std::string path_;
  uint64_t size_;
  FaultFileSystem* const disk_;
};

class FaultDirectory final : public FSDirectory {
 public:
  FaultDirectory(std::unique_ptr<FSDirectory> directory, std::string path, FaultFileSystem* disk)
      : directory_(std::move(directory)), path_(std::move(path)), disk_(disk) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileSync, path_));
    HPS_RETURN_IF_IO_ERROR(directory_->Fsync(options, debug));
    disk_->NoteDirectorySynced(path_);
    return IOStatus::OK();
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& directory_options) override {
    HPS_RETURN_IF_IO_ERROR(disk_->Check(kFileSync, path_));
    HPS_RETURN_IF_IO_ERROR(directory_->FsyncWithDirOptions(options, debug, directory_options));
    disk_->NoteDirectorySynced(path_);
    return IOStatus::OK();
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return directory_->Close(options, debug);
  }
  size_t GetUniqueId(char* id, size_t size_max) const override {
    return directory_->GetUniqueId(id, size_max);
  }

 private:
  const std::unique_ptr<FSDirectory> directory_;
  const std::string path_;
  FaultFileSystem* const disk_;
};

// "a/b/" and "a//b" name what "a/b" names.
std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

}  // namespace

std::string ThreadName() {
  char name[16] = "";  // as long as Linux makes them
  return pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 ? name : "";
}

FaultFileSystem::FaultFileSystem(std::shared_ptr<rocksdb::FileSystem> target)
    : FileSystemWrapper(target != nullptr ? std::move(target) : rocksdb::FileSystem::Default()) {}

void FaultFileSystem::Fail(const FileFaultPlan& plan) {
  MutexLock lock(mutex_);
  plan_ = plan;
  failing_ = true;
  matching_calls_ = 0;
}

void FaultFileSystem::FlipReads(const ReadFlipPlan& plan) {
  MutexLock lock(mutex_);
  flip_plan_ = plan;
  random_.seed(plan.seed);
}

void FaultFileSystem::SetFreeBytes(std::optional<uint64_t> bytes, bool tells) {
  MutexLock lock(mutex_);
  free_bytes_ = bytes;
  tells_free_bytes_ = tells;
}

void FaultFileSystem::Heal() {
  MutexLock lock(mutex_);
  failing_ = false;
  flip_plan_.reset();
  free_bytes_.reset();
}

void FaultFileSystem::CutPower() {
  MutexLock lock(mutex_);
  power_is_cut_ = true;
}

absl::Status FaultFileSystem::DropUnsynced() {
  MutexLock lock(mutex_);
  power_is_cut_ = false;
  for (const auto& [path, file] : written_) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    if (!file.directory_synced) {
      std::filesystem::remove(path, error);
    } else if (std::filesystem::file_size(path, error) > file.synced) {
      std::filesystem::resize_file(path, file.synced, error);
    }
    if (error) return absl::InternalError(absl::StrCat(path, ": ", error.message()));
  }
  written_.clear();
  return absl::OkStatus();
}

uint64_t FaultFileSystem::matching_calls() const {
  MutexLock lock(mutex_);
  return matching_calls_;
}

uint64_t FaultFileSystem::failures() const {
  MutexLock lock(mutex_);
  return failures_;
}

uint64_t FaultFileSystem::out_of_space_count() const {
  MutexLock lock(mutex_);
  return out_of_space_count_;
}

uint64_t FaultFileSystem::flips() const {
  MutexLock lock(mutex_);
  return flips_;
}

IOStatus FaultFileSystem::Check(FileCall call, const std::string& path) {
  MutexLock lock(mutex_);
  if (power_is_cut_ && (call & (kFileCreate | kFileAppend | kFileSync | kFileChange)) != 0)
    return IOStatus::IOError("planned: the power is cut", path);
  if (!failing_ || (plan_.calls & call) == 0) return IOStatus::OK();
  if (path.find(plan_.path_contains) == std::string::npos) return IOStatus::OK();
  if (ThreadName().find(plan_.thread_contains) == std::string::npos) return IOStatus::OK();
  const uint64_t number = matching_calls_++;
  if (number < plan_.nth || (number > plan_.nth && !plan_.sticky)) return IOStatus::OK();
  ++failures_;
  return plan_.status;
}

uint64_t FaultFileSystem::TakeSpace(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (!free_bytes_.has_value()) return bytes;
  const uint64_t taken = std::min(bytes, *free_bytes_);
  *free_bytes_ -= taken;
  if (taken < bytes) ++out_of_space_count_;
  return taken;
}

void FaultFileSystem::NoteSize(const std::string& path, uint64_t size) {
  MutexLock lock(mutex_);
  WrittenFile& file = written_[path];
  if (size < file.size && free_bytes_.has_value()) *free_bytes_ += file.size - size;
  file.size = size;
}

void FaultFileSystem::NoteSynced(const std::string& path, uint64_t size) {
  MutexLock lock(mutex_);
  WrittenFile& file = written_[path];
  file.synced = std::max(file.synced, size);
}

void FaultFileSystem::NoteDirectorySynced(const std::string& directory) {
  MutexLock lock(mutex_);
  for (auto& [path, file] : written_) {
    if (std::filesystem::path(path).parent_path() == directory) file.directory_synced = true;
  }
}

void FaultFileSystem::MaybeFlip(const std::string& path, Slice* result, char* scratch) {
  MutexLock lock(mutex_);
  if (!flip_plan_.has_value() || result->empty()) return;
  if (path.find(flip_plan_->path_contains) == std::string::npos) return;
  if (random_() % flip_plan_->every != 0) return;
  if (result->data() != scratch) std::memmove(scratch, result->data(), result->size());
  const uint64_t bit = random_() % (result->size() * 8);
  scratch[bit / 8] = static_cast<char>(scratch[bit / 8] ^ (1 << (bit % 8)));
  *result = Slice(scratch, result->size());
  ++flips_;
}

void FaultFileSystem::Forget(const std::string& path) {
  const auto file = written_.find(path);
  if (file == written_.end()) return;
  if (free_bytes_.has_value()) *free_bytes_ += file->second.size;
  written_.erase(file);
}

IOStatus FaultFileSystem::NewSequentialFile(const std::string& path, const FileOptions& options,
                                            std::unique_ptr<FSSequentialFile>* file,
                                            IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileOpen, path));
  std::unique_ptr<FSSequentialFile> real;
  HPS_RETURN_IF_IO_ERROR(target()->NewSequentialFile(path, options, &real, debug));
  *file = std::make_unique<FaultSequentialFile>(std::move(real), Normal(path), this);
  return IOStatus::OK();
}

IOStatus FaultFileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                              std::unique_ptr<FSRandomAccessFile>* file,
                                              IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileOpen, path));
  std::unique_ptr<FSRandomAccessFile> real;
  HPS_RETURN_IF_IO_ERROR(target()->NewRandomAccessFile(path, options, &real, debug));
  *file = std::make_unique<FaultRandomAccessFile>(std::move(real), Normal(path), this);
  return IOStatus::OK();
}

IOStatus FaultFileSystem::Create(
    const std::string& path, std::unique_ptr<FSWritableFile>* file,
    const std::function<IOStatus(std::unique_ptr<FSWritableFile>*)>& open) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileCreate, path));
  std::unique_ptr<FSWritableFile> real;
  HPS_RETURN_IF_IO_ERROR(open(&real));
  const std::string normal = Normal(path);
  {
    MutexLock lock(mutex_);
    Forget(normal);
    written_[normal] = {};
  }
  *file = std::make_unique<FaultWritableFile>(std::move(real), normal, 0, this);
  return IOStatus::OK();
}

IOStatus FaultFileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                          std::unique_ptr<FSWritableFile>* file,
                                          IODebugContext* debug) {
  return Create(path, file, [&](std::unique_ptr<FSWritableFile>* real) {
    return target()->NewWritableFile(path, options, real, debug);
  });
}

IOStatus FaultFileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                            const FileOptions& options,
                                            std::unique_ptr<FSWritableFile>* file,
                                            IODebugContext* debug) {
  return Create(path, file, [&](std::unique_ptr<FSWritableFile>* real) {
    return target()->ReuseWritableFile(path, old_path, options, real, debug);
  });
}

IOStatus FaultFileSystem::ReopenWritableFile(const std::string& path, const FileOptions& options,
                                             std::unique_ptr<FSWritableFile>* file,
                                             IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileOpen, path));
  uint64_t size = 0;
  if (!target()->GetFileSize(path, IOOptions(), &size, debug).ok()) size = 0;
  std::unique_ptr<FSWritableFile> real;
  HPS_RETURN_IF_IO_ERROR(target()->ReopenWritableFile(path, options, &real, debug));
  const std::string normal = Normal(path);
  {
    MutexLock lock(mutex_);
    // A file of before this file system's time counts as durable.
    written_.try_emplace(normal, WrittenFile{size, size, true});
  }
  *file = std::make_unique<FaultWritableFile>(std::move(real), normal, size, this);
  return IOStatus::OK();
}

IOStatus FaultFileSystem::NewDirectory(const std::string& path, const IOOptions& options,
                                       std::unique_ptr<FSDirectory>* directory,
                                       IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileOpen, path));
  std::unique_ptr<FSDirectory> real;
  HPS_RETURN_IF_IO_ERROR(target()->NewDirectory(path, options, &real, debug));
  *directory = std::make_unique<FaultDirectory>(std::move(real), Normal(path), this);
  return IOStatus::OK();
}

IOStatus FaultFileSystem::FileExists(const std::string& path, const IOOptions& options,
                                     IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileList, path));
  return target()->FileExists(path, options, debug);
}

IOStatus FaultFileSystem::GetChildren(const std::string& path, const IOOptions& options,
                                      std::vector<std::string>* names, IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileList, path));
  return target()->GetChildren(path, options, names, debug);
}

IOStatus FaultFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                     IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileChange, path));
  HPS_RETURN_IF_IO_ERROR(target()->DeleteFile(path, options, debug));
  MutexLock lock(mutex_);
  Forget(Normal(path));
  return IOStatus::OK();
}

IOStatus FaultFileSystem::Truncate(const std::string& path, size_t size, const IOOptions& options,
                                   IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileAppend, path));
  return target()->Truncate(path, size, options, debug);
}

IOStatus FaultFileSystem::CreateDir(const std::string& path, const IOOptions& options,
                                    IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileCreate, path));
  return target()->CreateDir(path, options, debug);
}

IOStatus FaultFileSystem::CreateDirIfMissing(const std::string& path, const IOOptions& options,
                                             IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileCreate, path));
  return target()->CreateDirIfMissing(path, options, debug);
}

IOStatus FaultFileSystem::DeleteDir(const std::string& path, const IOOptions& options,
                                    IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileChange, path));
  return target()->DeleteDir(path, options, debug);
}

IOStatus FaultFileSystem::GetFileSize(const std::string& path, const IOOptions& options,
                                      uint64_t* size, IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileList, path));
  return target()->GetFileSize(path, options, size, debug);
}

IOStatus FaultFileSystem::RenameFile(const std::string& from, const std::string& to,
                                     const IOOptions& options, IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileChange, from));
  HPS_RETURN_IF_IO_ERROR(target()->RenameFile(from, to, options, debug));
  MutexLock lock(mutex_);
  Forget(Normal(to));
  if (auto file = written_.extract(Normal(from)); !file.empty()) {
    file.key() = Normal(to);
    file.mapped().directory_synced = true;
    written_.insert(std::move(file));
  }
  return IOStatus::OK();
}

IOStatus FaultFileSystem::LinkFile(const std::string& from, const std::string& to,
                                   const IOOptions& options, IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileChange, from));
  HPS_RETURN_IF_IO_ERROR(target()->LinkFile(from, to, options, debug));
  MutexLock lock(mutex_);
  // The bytes are the old file's; the new name needs its directory's sync.
  if (const auto file = written_.find(Normal(from)); file != written_.end())
    written_[Normal(to)] = {.size = 0, .synced = file->second.synced};
  return IOStatus::OK();
}

IOStatus FaultFileSystem::LockFile(const std::string& path, const IOOptions& options,
                                   rocksdb::FileLock** lock, IODebugContext* debug) {
  HPS_RETURN_IF_IO_ERROR(Check(kFileOpen, path));
  return target()->LockFile(path, options, lock, debug);
}

IOStatus FaultFileSystem::GetFreeSpace(const std::string& path, const IOOptions& options,
                                       uint64_t* bytes, IODebugContext* debug) {
  {
    MutexLock lock(mutex_);
    if (free_bytes_.has_value() && tells_free_bytes_) {
      *bytes = *free_bytes_;
      return IOStatus::OK();
    }
  }
  return target()->GetFreeSpace(path, options, bytes, debug);
}

}  // namespace hps
