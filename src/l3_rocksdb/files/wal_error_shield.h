// The file system as RocksDB sees it under a store that is open for writing: it keeps from RocksDB
// the errors that RocksDB 7.8.3 can't bear.
//
// Debian's build has its assertions on, and some of them do not hold after an error of a disk: one
// that the log met ends the process at the next write, or in a flush that runs beside it. So
// RocksDB never sees an error of its write-ahead log. What could not be written is kept, and so is
// the file, until Settle has written it at the place where it belongs; a sync that failed is owed
// likewise. The store asks after each write whether something is owed and then reports the error
// itself (Database::Write), and it syncs the log by SyncLogs, not by RocksDB, whose own way writes
// the MANIFEST in the middle of a write and does not bear that to fail. While something is owed the
// MANIFEST is not written: nothing counts as flushed, nor a log as synced, before the log is whole.
//
// All other errors pass, without the marks by which RocksDB would choose its own way to recover:
// see background_errors.h. And while it is not certain which MANIFEST the next open will read, and
// up to where, no file that it may name is deleted: RocksDB takes files away that a failed change
// of the MANIFEST has named, though the change may have reached the disk.
//
// Thread-safe. Memory: what writes that were under way have left unwritten, since a store begins no
// write while something is owed.
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

// One write-ahead log and what is owed to it.
struct BufferedWal;

class WalErrorShield final : public rocksdb::FileSystemWrapper {
 public:
  // Files whose path begins with `staging` are read only to be taken over: see staged_file.h.
  WalErrorShield(const std::shared_ptr<rocksdb::FileSystem>& target, std::string staging);
  ~WalErrorShield() override;

  // Whether nothing is owed.
  bool settled() const { return flushed_count_.load() == error_count_.load(); }
  // Writes and syncs what is owed. Errors: as the file system's; what failed stays owed.
  rocksdb::IOStatus Settle();
  // Makes durable what the logs hold. Errors: as the file system's; the sync is then owed.
  rocksdb::IOStatus SyncLogs();
  // How many syncs of logs have failed so far. After one the system may have dropped what it could
  // not write, so a later sync that succeeds proves nothing about it: what the logs hold must
  // become durable in another way.
  uint64_t sync_failures() const { return sync_failures_.load(); }

  // The error as RocksDB shall see it.
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

  // For the files that it opens.
  void NoteError() { error_count_.fetch_add(1); }
  void NoteSyncFailure() { sync_failures_.fetch_add(1); }
  void Forget(const std::string& path);
  // RocksDB writes another MANIFEST after an error of the last one, and then CURRENT, which names
  // it. In between, and before, either may be the one that counts.
  void NoteManifestUnconfirmed();
  void NoteManifestConfirmed();

 private:
  std::vector<std::shared_ptr<BufferedWal>> Logs() const;
  rocksdb::IOStatus SyncLog(BufferedWal& log);
  bool DefersDelete(const std::string& path);

  const std::shared_ptr<rocksdb::FileSystem> shared_target_;
  const std::string staging_;
  mutable Mutex mutex_;  // taken after a log's own
  std::map<std::string, std::shared_ptr<BufferedWal>> logs_ HPS_GUARDED_BY(mutex_);  // by path
  std::atomic<uint64_t> error_count_{0};    // of errors after which something was owed
  std::atomic<uint64_t> flushed_count_{0};  // ... and how many of them are made good
  std::atomic<uint64_t> sync_failures_{0};
  bool manifest_unconfirmed_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<std::string> deferred_deletes_ HPS_GUARDED_BY(mutex_);  // since then
};

}  // namespace hps
