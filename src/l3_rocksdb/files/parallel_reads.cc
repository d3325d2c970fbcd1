#include "l3_rocksdb/files/parallel_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "l3_pages/uring_queue.h"

namespace hps {
namespace {

using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr size_t kDirectAlignment = 4096;

// The queues of all files. Keeps as many as there may be fetches at a time. Thread-safe.
class ReadQueues {
 public:
  // Null if the system refuses one.
  std::unique_ptr<PageQueue> Take() {
    {
      MutexLock lock(mutex_);
      if (refused_) return nullptr;
      if (!free_.empty()) {
        std::unique_ptr<PageQueue> queue = std::move(free_.back());
        free_.pop_back();
        return queue;
      }
    }
    absl::StatusOr<std::unique_ptr<PageQueue>> made = MakeUringQueue();
    if (made.ok()) return *std::move(made);
    MutexLock lock(mutex_);
    if (absl::IsUnimplemented(made.status())) refused_ = true;
    return nullptr;
  }
  // REQUIRES: no read is in flight.
  void Return(std::unique_ptr<PageQueue> queue) {
    MutexLock lock(mutex_);
    if (free_.size() < kFetchScratchesMax) free_.push_back(std::move(queue));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<PageQueue>> free_ HPS_GUARDED_BY(mutex_);
  bool refused_ HPS_GUARDED_BY(mutex_) = false;
};

class ParallelReadFile final : public FSRandomAccessFile {
 public:
  ParallelReadFile(std::string path, int descriptor, bool direct, ReadQueues& queues)
      : path_(std::move(path)), descriptor_(descriptor), direct_(direct), queues_(queues) {}
  ParallelReadFile(const ParallelReadFile&) = delete;
  ParallelReadFile& operator=(const ParallelReadFile&) = delete;
  ~ParallelReadFile() override { ::close(descriptor_); }

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& /*options*/, Slice* result,
                char* scratch, IODebugContext* /*debug*/) const override {
    size_t done = 0;
    while (done < n) {
      const ssize_t count =
          ::pread(descriptor_, scratch + done, n - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        *result = Slice();
        return Failed("While reading", errno);
      }
      done += static_cast<size_t>(count);
      if (count == 0 || (direct_ && done % kDirectAlignment != 0)) break;  // the file's end
    }
    *result = Slice(scratch, done);
    return IOStatus::OK();
  }
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override;
  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions& options,
                    IODebugContext* debug) override;
  IOStatus InvalidateCache(size_t offset, size_t length) override;
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kDirectAlignment; }

 private:
  // At most kPageSlotsMax requests. Those that fail here are read again, alone.
  void ReadTogether(std::span<FSReadRequest> requests, std::span<bool> read);
  IOStatus Failed(const char* what, int error_number) const {
    return IOStatus::IOError(
        absl::StrCat(what, " ", path_, ": ", std::generic_category().message(error_number)));
  }

  const std::string path_;
  const int descriptor_;
  const bool direct_;
  ReadQueues& queues_;
};

void ParallelReadFile::ReadTogether(std::span<FSReadRequest> requests, std::span<bool> read) {
  std::fill(read.begin(), read.end(), false);
  std::unique_ptr<PageQueue> queue = requests.size() > 1 ? queues_.Take() : nullptr;
  if (queue == nullptr) return;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::span<char> into(requests[i].scratch, requests[i].len);
    queue->Begin({descriptor_, requests[i].offset, std::as_writable_bytes(into), i});
  }
  std::array<EndedPageRead, kPageSlotsMax> ended;
  while (queue->in_flight() > 0) {
    const absl::StatusOr<size_t> count = queue->Await(ended, kNoDeadline);
    if (!count.ok()) return;  // the queue waits for its reads when it is destroyed
    for (size_t i = 0; i < *count; ++i) {
      FSReadRequest& request = requests[ended[i].slot];
      if (ended[i].result < 0 || static_cast<size_t>(ended[i].result) != request.len) continue;
      request.result = Slice(request.scratch, request.len);
      request.status = IOStatus::OK();
      read[ended[i].slot] = true;
    }
  }
  queues_.Return(std::move(queue));
}

IOStatus ParallelReadFile::MultiRead(FSReadRequest* requests, size_t count,
                                     const IOOptions& options, IODebugContext* debug) {
  std::array<bool, kPageSlotsMax> read;
  for (size_t first = 0; first < count; first += kPageSlotsMax) {
    const size_t piece = std::min(kPageSlotsMax, count - first);
    ReadTogether({requests + first, piece}, std::span(read).first(piece));
    for (size_t i = 0; i < piece; ++i) {
      FSReadRequest& request = requests[first + i];
      if (read[i]) continue;
      request.status =
          Read(request.offset, request.len, options, &request.result, request.scratch, debug);
    }
  }
  return IOStatus::OK();
}

IOStatus ParallelReadFile::Prefetch(uint64_t offset, size_t n, const IOOptions& /*options*/,
                                    IODebugContext* /*debug*/) {
  if (direct_) return IOStatus::OK();
  const bool done = ::readahead(descriptor_, static_cast<off_t>(offset), n) == 0;
  return done ? IOStatus::OK() : Failed("While prefetching", errno);
}

IOStatus ParallelReadFile::InvalidateCache(size_t offset, size_t length) {
  if (direct_) return IOStatus::OK();
  const int failed = ::posix_fadvise(descriptor_, static_cast<off_t>(offset),
                                     static_cast<off_t>(length), POSIX_FADV_DONTNEED);
  return failed == 0 ? IOStatus::OK() : Failed("While uncaching", failed);
}

class ParallelReads final : public rocksdb::FileSystemWrapper {
 public:
  ParallelReads() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "ParallelReads"; }
  // A file that does not open here is opened by RocksDB's own file system, whose errors are exact.
  IOStatus NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file,
                               IODebugContext* debug) override {
    const int flags = O_RDONLY | O_CLOEXEC | (options.use_direct_reads ? O_DIRECT : 0);
    const bool is_table = path.ends_with(".sst") && !options.use_mmap_reads;
    const int descriptor = is_table ? ::open(path.c_str(), flags) : -1;
    if (descriptor < 0) return target()->NewRandomAccessFile(path, options, file, debug);
    *file = std::make_unique<ParallelReadFile>(path, descriptor, options.use_direct_reads, queues_);
    return IOStatus::OK();
  }

 private:
  ReadQueues queues_;
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> FileSystemOf(rocksdb::Env* env) {
  if (env != nullptr) return env->GetFileSystem();
  // One for the process. Never destroyed: files may outlive other objects of static storage.
  static const auto* const parallel =
      new std::shared_ptr<rocksdb::FileSystem>(std::make_shared<ParallelReads>());
  return *parallel;
}

}  // namespace hps
