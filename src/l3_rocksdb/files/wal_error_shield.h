// Shields RocksDB from errors of its write-ahead log (WAL): the file system that RocksDB uses under
// a store that is open for writing.
//
// Debian's build of RocksDB 7.8.3 has assertions that do not hold after a failed write or sync of
// the WAL: the next write or a concurrent flush ends the process. So this file system reports such
// errors as success:
//
//   - A failed append is kept in memory, together with the open file. A failed sync is remembered.
//   - pending() reports both. The store checks it after each write and returns the error itself.
//   - Flush() writes and syncs what is pending, each byte to its place in the file.
//   - The MANIFEST is written only after a successful Flush: nothing counts as flushed before the
//     WAL is complete.
//   - The store syncs the WAL by SyncLogs. RocksDB's own sync writes the MANIFEST in the middle of
//     a write, and does not survive a failure there.
//
// Other errors reach RocksDB without the flags that start its own recovery; see
// background_errors.h. After a failed write of the MANIFEST, the next open may read the old one or
// the new one. Until that is certain, no file that either may name is deleted.
//
// Thread-safe. Memory: the unwritten bytes of the writes that were running when the WAL failed. The
// store begins no other write while something is pending.
#pragma once

#include <rocksdb/file_system.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace hps {

// One WAL file, and what is pending for it.
struct BufferedWal;

class WalErrorShield final : public rocksdb::FileSystemWrapper {
 public:
  explicit WalErrorShield(const std::shared_ptr<rocksdb::FileSystem>& target);
  ~WalErrorShield() override;

  // True if bytes or syncs of a WAL file are pending.
  bool pending() const { return flushed_count_.load() != error_count_.load(); }
  // Writes and syncs what is pending. Errors: those of the file system; the rest stays pending.
  rocksdb::IOStatus Flush();
  // Syncs all WAL files. Errors: those of the file system; the sync is then pending.
  rocksdb::IOStatus SyncLogs();
  // The number of failed WAL syncs so far. After a failed sync the system may have discarded the
  // unwritten bytes, so a later successful sync proves nothing about them. The rows of the WAL must
  // become durable in another way.
  uint64_t sync_failures() const { return sync_failures_.load(); }

  // The error as RocksDB gets to see it.
  static rocksdb::IOStatus Downgrade(rocksdb::IOStatus status);

  const char* Name() const override { return "WalErrorShield"; }

  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& path, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFileSize(const std::string& path, const rocksdb::IOOptions& options,
                                uint64_t* size, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* debug) override;

  // Called by the files that this file system opens.
  void NoteError() { error_count_.fetch_add(1); }
  void NoteSyncFailure() { sync_failures_.fetch_add(1); }
  void Forget(const std::string& path);
  // After a failed write of the MANIFEST, RocksDB writes another one, and then CURRENT, which names
  // it. From the failure until CURRENT is written, either MANIFEST may be the valid one.
  void NoteManifestUnconfirmed();
  void NoteManifestConfirmed();

 private:
  std::vector<std::shared_ptr<BufferedWal>> Logs() const;
  rocksdb::IOStatus SyncLog(BufferedWal& log);
  bool DefersDelete(const std::string& path);

  mutable Mutex mutex_;  // acquired after a WAL file's own mutex
  std::map<std::string, std::shared_ptr<BufferedWal>> logs_ HPS_GUARDED_BY(mutex_);  // by path
  std::atomic<uint64_t> error_count_{0};    // WAL errors that left something pending
  std::atomic<uint64_t> flushed_count_{0};  // errors that Flush has repaired
  std::atomic<uint64_t> sync_failures_{0};
  bool manifest_unconfirmed_ HPS_GUARDED_BY(mutex_) = false;
  // Files to be deleted once the MANIFEST is confirmed.
  std::vector<std::string> deferred_deletes_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
