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

struct Pieces {
  std::map<uint64_t, std::string> by_offset;  // what was read
  uint64_t file_bytes = UINT64_MAX;           // known when a read came to the end
};

// Reads through to the file below and keeps, or knows already, what it has read.
class RememberingFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  RememberingFile(std::unique_ptr<FSRandomAccessFile> file, std::shared_ptr<Pieces> pieces,
                  bool learns)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        pieces_(std::move(pieces)),
        learns_(learns) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    if (Recall(offset, n, result, scratch)) return IOStatus::OK();
    const IOStatus status = target()->Read(offset, n, options, result, scratch, debug);
    if (status.ok() && learns_) {
      std::string& piece = pieces_->by_offset[offset];
      if (piece.size() < result->size()) piece.assign(result->data(), result->size());
      if (result->size() < n) pieces_->file_bytes = offset + result->size();
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
  bool Recall(uint64_t offset, size_t n, Slice* result, char* scratch) const {
    auto piece = pieces_->by_offset.upper_bound(offset);
    if (piece == pieces_->by_offset.begin() || offset >= pieces_->file_bytes) return false;
    --piece;
    const uint64_t begin = offset - piece->first;
    n = std::min<uint64_t>(n, pieces_->file_bytes - offset);
    if (begin + n > piece->second.size()) return false;
    std::memcpy(scratch, piece->second.data() + begin, n);
    *result = Slice(scratch, n);
    return true;
  }

  const std::shared_ptr<Pieces> pieces_;
  const bool learns_;
};

// What the rehearsal sees: every file that it opens is the one file.
class RehearsalFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  RehearsalFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target,
                      std::shared_ptr<Pieces> pieces)
      : FileSystemWrapper(target), pieces_(std::move(pieces)) {}

  const char* Name() const override { return "RehearsalFileSystem"; }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file,
                               IODebugContext* debug) override {
    std::unique_ptr<FSRandomAccessFile> real;
    IOStatus status = target()->NewRandomAccessFile(path, options, &real, debug);
    if (status.ok()) *file = std::make_unique<RememberingFile>(std::move(real), pieces_, true);
    return status;
  }

 private:
  const std::shared_ptr<Pieces> pieces_;
};

rocksdb::Status Rehearse(rocksdb::Env* env, const std::string& path) {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;  // what a cache would answer is not learnt
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
  const auto pieces = std::make_shared<Pieces>();
  const std::unique_ptr<rocksdb::Env> env =
      rocksdb::NewCompositeEnv(std::make_shared<RehearsalFileSystem>(target, pieces));
  rocksdb::Status rehearsed = Rehearse(env.get(), path);
  if (!rehearsed.ok()) return rocksdb::status_to_io_status(std::move(rehearsed));
  std::unique_ptr<FSRandomAccessFile> real;
  IOStatus status = target->NewRandomAccessFile(path, options, &real, nullptr);
  if (status.ok()) *file = std::make_unique<RememberingFile>(std::move(real), pieces, false);
  return status;
}

}  // namespace hps
