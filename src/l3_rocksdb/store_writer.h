// Writes to the store's RocksDB: batches, syncs of its log, flushes; and the recovery after errors
// of the disk that makes writes go on. background_errors.h and wal_error_shield.h describe the
// errors that are hidden from RocksDB.
//
// Thread-safe. Lock order: the lock of a recovery, then those of the catalog and of the families.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "l3_rocksdb/family_table.h"
#include "l3_rocksdb/memtable_switch_lock.h"
#include "l3_rocksdb/store_db.h"

namespace hps {

class LogSyncer;

class StoreWriter {
 public:
  StoreWriter(StoreDb& store, FamilyTable& families);
  ~StoreWriter();

  // Syncs the log now and then if the sync mode is interval. Errors: RESOURCE_EXHAUSTED (no
  // thread).
  absl::Status StartSyncing();
  void StopSyncing();

  // Commits a change of rows or of the catalog. The sync mode decides when it becomes durable; with
  // `durable`, it is durable when the call returns. Errors: those of DurableTable::Write. If the
  // disk fails during the write, readers may see the change although it is lost when the process
  // ends.
  absl::Status Write(rocksdb::WriteBatch& batch, bool durable);
  // As Write, without checking space and health: the caller has checked them, or must not be
  // refused.
  absl::Status Commit(rocksdb::WriteBatch& batch, bool durable);
  // Makes everything written so far durable.
  absl::Status Sync();

  // OK if the log is complete and no background error is pending; tries to recover first.
  absl::Status EnsureHealthy() { return healthy() ? absl::OkStatus() : Recover(); }
  // OK if no bytes or syncs of the log are pending; tries to recover first.
  absl::Status FlushWal() { return WalIsFlushed() ? absl::OkStatus() : Recover(); }
  bool healthy() const;

  // Writes what these families have in memory to table files. Does not use RocksDB's own wait,
  // which never ends if the flush fails.
  rocksdb::Status Flush(const std::vector<rocksdb::ColumnFamilyHandle*>& families);

  // The files that make up the store now, with the log up to the last whole write. No write runs
  // meanwhile. REQUIRES: file deletions are disabled. Errors: UNAVAILABLE (the disk fails).
  absl::Status ListLiveFiles(std::vector<rocksdb::LiveFileStorageInfo>* files);

  // Of a family that was dropped: while no memtable is switched.
  void DestroyHandle(rocksdb::ColumnFamilyHandle* handle);

  // The error of a write that RocksDB refused. Damage is UNAVAILABLE: a write meets none.
  absl::Status FailedWrite(const rocksdb::Status& status) const;

 private:
  bool WalIsFlushed() const;
  absl::Status Recover();
  absl::Status TryToRecover(const std::vector<FamilyPin>& pins) HPS_REQUIRES(recovery_mutex_);
  rocksdb::Status RequestFlushes(const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status RequestFlushesThoughStopped(
      const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status RequestFlushesWithRoom(const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status WriteToRocks(rocksdb::WriteBatch& batch);
  absl::Status WriteAfterStall(rocksdb::WriteBatch& batch);

  StoreDb& store_;
  FamilyTable& families_;
  MemtableSwitchLock memtable_switch_lock_;
  std::unique_ptr<LogSyncer> syncer_;  // null unless the sync mode is interval
  Mutex recovery_mutex_;
  std::atomic<uint64_t> sync_failures_recovered_{0};  // of WalErrorShield::sync_failures
  std::atomic<uint64_t> recovery_attempts_{0};
  absl::Status last_recovery_ HPS_GUARDED_BY(recovery_mutex_);
};

}  // namespace hps
