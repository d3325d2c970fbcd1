// RocksDB's background errors: logged, and remembered until RocksDB has recovered from them.
//
// The next write asks RocksDB to recover, nobody else: its own ways to do so run on threads beside
// that, and version 7.8.3 aborts in both, or never ends closing when it has just begun one.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/listener.h>

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace hps {

// Thread-safe.
class BackgroundErrors final : public rocksdb::EventListener {
 public:
  // Called once the database is open.
  void SetDatabase(rocksdb::DB* database) { database_.store(database); }

  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason reason, rocksdb::Status error,
                            bool* auto_recovery) override;

  struct Pending {
    rocksdb::Status error;  // ok = nothing is pending
    uint64_t count = 0;     // of errors so far
  };
  Pending pending() const;
  // A recovery has succeeded; `count` as pending() gave it before.
  void NoteRecovered(uint64_t count);

 private:
  std::atomic<rocksdb::DB*> database_{nullptr};
  mutable Mutex mutex_;
  rocksdb::Status last_ HPS_GUARDED_BY(mutex_);
  uint64_t count_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t recovered_count_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps
