// A file system whose writes, syncs and reads fail when a test asks for it. For tests with one
// thread.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace hps {

class TestDisk final : public rocksdb::FileSystemWrapper {
 public:
  TestDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  bool fails_appends = false;  // the first half of the bytes is written
  bool fails_flushes = false;
  bool fails_syncs = false;
  std::string fails_only{};          // paths that the flags above affect contain this
  uint64_t reads_left = UINT64_MAX;  // of random access files; later reads fail
  rocksdb::IOStatus error = rocksdb::IOStatus::IOError("a planned fault");
  std::function<void()> on_read{};  // called before each read, including reads that fail
  uint64_t sync_count = 0;          // successful syncs of files

  const char* Name() const override { return "TestDisk"; }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
};

class TestDiskReader final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  TestDiskReader(std::unique_ptr<rocksdb::FSRandomAccessFile> file, TestDisk* disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), disk_(disk) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override {
    if (disk_->on_read) disk_->on_read();
    if (disk_->reads_left == 0) return disk_->error;
    --disk_->reads_left;
    return target()->Read(offset, n, options, result, scratch, debug);
  }
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override {
    return FSRandomAccessFile::MultiRead(requests, count, options, debug);
  }
  rocksdb::IOStatus Prefetch(uint64_t, size_t, const rocksdb::IOOptions&,
                             rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::NotSupported();
  }

 private:
  TestDisk* const disk_;
};

class TestDiskWriter final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  TestDiskWriter(std::unique_ptr<rocksdb::FSWritableFile> file, std::string path, TestDisk* disk)
      : FSWritableFileOwnerWrapper(std::move(file)), path_(std::move(path)), disk_(disk) {}

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    if (!Fails(disk_->fails_appends)) return target()->Append(data, options, debug);
    const rocksdb::Slice half(data.data(), data.size() / 2);
    target()->Append(half, options, debug).PermitUncheckedError();
    return disk_->error;
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo&,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* debug) override {
    if (Fails(disk_->fails_appends)) return disk_->error;
    return target()->PositionedAppend(data, offset, options, debug);
  }
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo&,
                                     rocksdb::IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override {
    return Fails(disk_->fails_flushes) ? disk_->error : target()->Flush(options, debug);
  }
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override {
    if (Fails(disk_->fails_syncs)) return disk_->error;
    ++disk_->sync_count;
    return target()->Sync(options, debug);
  }

 private:
  bool Fails(bool planned) const {
    return planned && path_.find(disk_->fails_only) != std::string::npos;
  }

  const std::string path_;
  TestDisk* const disk_;
};

inline rocksdb::IOStatus TestDisk::NewRandomAccessFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomAccessFile>* file, rocksdb::IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSRandomAccessFile> real;
  rocksdb::IOStatus status = target()->NewRandomAccessFile(path, options, &real, debug);
  if (status.ok()) *file = std::make_unique<TestDiskReader>(std::move(real), this);
  return status;
}

inline rocksdb::IOStatus TestDisk::NewWritableFile(const std::string& path,
                                                   const rocksdb::FileOptions& options,
                                                   std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                   rocksdb::IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSWritableFile> real;
  rocksdb::IOStatus status = target()->NewWritableFile(path, options, &real, debug);
  if (status.ok()) *file = std::make_unique<TestDiskWriter>(std::move(real), path, this);
  return status;
}

}  // namespace hps
