#include "l3_rocksdb/import/staged_file.h"

#include <rocksdb/env.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace hps {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

struct CachedReads {
  std::map<uint64_t, std::string> by_offset;  // the bytes read
  uint64_t file_bytes = UINT64_MAX;           // known once a read reached the end
};

// Answers reads from `reads` if they are cached there. Otherwise reads the file and, with
// `records`, caches the bytes.
class RecordingFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  RecordingFile(std::unique_ptr<FSRandomAccessFile> file, std::shared_ptr<CachedReads> reads,
                bool recording)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        reads_(std::move(reads)),
        recording_(recording) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    if (ReadFromCache(offset, n, result, scratch)) return IOStatus::OK();
    const IOStatus status = target()->Read(offset, n, options, result, scratch, debug);
    if (status.ok() && recording_) {
      std::string& read = reads_->by_offset[offset];
      if (read.size() < result->size()) read.assign(result->data(), result->size());
      if (result->size() < n) reads_->file_bytes = offset + result->size();
    }
    return status;
  }
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
  IOStatus Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported();
  }

 private:
  bool ReadFromCache(uint64_t offset, size_t n, Slice* result, char* scratch) const {
    auto read = reads_->by_offset.upper_bound(offset);
    if (read == reads_->by_offset.begin() || offset >= reads_->file_bytes) return false;
    --read;
    const uint64_t begin = offset - read->first;
    n = std::min<uint64_t>(n, reads_->file_bytes - offset);
    if (begin + n > read->second.size()) return false;
    std::memcpy(scratch, read->second.data() + begin, n);
    *result = Slice(scratch, n);
    return true;
  }

  const std::shared_ptr<CachedReads> reads_;
  const bool recording_;
};

// Every file that is opened through this file system records its reads. Preread opens only one
// file.
class RecordingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  RecordingFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target,
                      std::shared_ptr<CachedReads> reads)
      : FileSystemWrapper(target), reads_(std::move(reads)) {}

  const char* Name() const override { return "RecordingFileSystem"; }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file,
                               IODebugContext* debug) override {
    std::unique_ptr<FSRandomAccessFile> real;
    IOStatus status = target()->NewRandomAccessFile(path, options, &real, debug);
    if (status.ok()) *file = std::make_unique<RecordingFile>(std::move(real), reads_, true);
    return status;
  }

 private:
  const std::shared_ptr<CachedReads> reads_;
};

rocksdb::Status Preread(rocksdb::Env* env, const std::string& path) {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;  // a block cache would hide reads from the recording
  rocksdb::Options options;
  options.env = env;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  rocksdb::SstFileReader reader(options);
  rocksdb::Status status = reader.Open(path);
  if (!status.ok()) return status;
  const std::unique_ptr<rocksdb::Iterator> it(reader.NewIterator(rocksdb::ReadOptions()));
  it->SeekToFirst();
  status = it->status();
  if (status.ok()) it->SeekToLast();
  return status.ok() ? it->status() : status;
}

}  // namespace

IOStatus OpenStagedFile(const std::shared_ptr<rocksdb::FileSystem>& target, const std::string& path,
                        const FileOptions& options, std::unique_ptr<FSRandomAccessFile>* file) {
  const auto reads = std::make_shared<CachedReads>();
  const std::unique_ptr<rocksdb::Env> env =
      rocksdb::NewCompositeEnv(std::make_shared<RecordingFileSystem>(target, reads));
  rocksdb::Status preread = Preread(env.get(), path);
  if (!preread.ok()) return rocksdb::status_to_io_status(std::move(preread));
  std::unique_ptr<FSRandomAccessFile> real;
  IOStatus status = target->NewRandomAccessFile(path, options, &real, nullptr);
  if (status.ok()) *file = std::make_unique<RecordingFile>(std::move(real), reads, false);
  return status;
}

}  // namespace hps
