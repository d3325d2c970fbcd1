// RocksDB's background work as its store sees it: errors, remembered until they are made good, and
// what a wait for a flush can go by.
//
// After most errors of a disk RocksDB 7.8.3 stops itself and can't be brought back without flaws:
// DB::Resume leaves a mark by which a later Flush returns before it has flushed and an import ends
// the process, and recovery by itself runs on threads that abort beside a writer, or never end
// beside a close. So it is told that an error of the disk is a soft one, which stops nothing: what
// failed has failed, rows stay in memory and in the log, and Database::Recover flushes them again.
//
// All other errors are damage or bugs. RocksDB takes no write after them until it is opened again:
// a compaction that meets damage fails as a whole, and leaves the damaged file as it was.
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
    rocksdb::Status error;  // the last one; ok = nothing is pending
    uint64_t count = 0;     // of errors so far
    bool is_final = false;  // one of them has ended all writing
  };
  bool any_pending() const { return any_pending_.load(); }
  Pending pending() const;
  // Of all errors so far, also of compactions.
  uint64_t count() const;
  // The errors before `count`, as pending() gave it, are made good.
  void NoteRecovered(uint64_t count);

  // The number of errors, flushes and stalls so far; grows.
  uint64_t change_count() const;
  // Waits until it is another than `seen`. False when `deadline` has passed.
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
