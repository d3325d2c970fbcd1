// Records the errors of RocksDB's background work until they are recovered, and lets a thread wait
// for flushes and stalls.
//
// After most disk errors RocksDB 7.8.3 stops writing, and its own recovery is flawed. DB::Resume
// leaves a flag that makes a later Flush return before it has flushed. Automatic recovery runs on
// threads that abort if a writer is active, or that never end if the database is closed. Therefore
// this listener downgrades disk errors to soft errors, which stop nothing. After a failed flush the
// rows stay in memory and in the WAL, and Database::Recover flushes them again.
//
// All other errors are damage or bugs. After one, RocksDB accepts no write until it is reopened. A
// compaction that reads damage fails as a whole and leaves the damaged file unchanged.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/listener.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace hps {

// Thread-safe.
class BackgroundErrors final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason reason, rocksdb::Status error,
                            bool* auto_recovery) override;
  void OnFlushCompleted(rocksdb::DB* database, const rocksdb::FlushJobInfo& flush) override;
  void OnStallConditionsChanged(const rocksdb::WriteStallInfo& stall) override;

  struct Pending {
    rocksdb::Status error;  // the last error; ok = nothing is pending
    uint64_t count = 0;     // errors so far
    bool is_final = false;  // an error has ended all writing
  };
  bool any_pending() const { return any_pending_.load(); }
  Pending pending() const;
  // The number of errors so far, including errors of compactions.
  uint64_t count() const;
  // Marks errors as recovered. `count` is that of an earlier pending(); later errors stay pending.
  void NoteRecovered(uint64_t count);

  // The number of errors, flushes and stalls so far.
  uint64_t change_count() const;
  // Waits until change_count() differs from `seen`. Returns false at `deadline`.
  bool WaitForChange(uint64_t seen, Deadline deadline) const;

 private:
  void NoteChange();

  std::atomic<bool> any_pending_{false};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t change_count_ HPS_GUARDED_BY(mutex_) = 0;
  rocksdb::Status last_ HPS_GUARDED_BY(mutex_);
  uint64_t error_count_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t compaction_error_count_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t recovered_count_ HPS_GUARDED_BY(mutex_) = 0;
  bool is_final_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
