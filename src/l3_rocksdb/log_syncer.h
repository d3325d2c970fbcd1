// The thread behind sync = "interval": makes what was written durable at most that much later.
#pragma once

#include <rocksdb/db.h>

#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace hps {

// Makes everything written so far durable: an empty write that syncs, in turn with all other
// writes. RocksDB's SyncWAL is not in turn, and where the log's last write has failed (a full disk)
// version 7.8.3 aborts in it; a write is then refused.
rocksdb::Status SyncLog(rocksdb::DB& db);

// Thread-safe. Destroy it before the database.
class LogSyncer {
 public:
  LogSyncer(rocksdb::DB& db, Duration interval);
  ~LogSyncer();
  LogSyncer(const LogSyncer&) = delete;
  LogSyncer& operator=(const LogSyncer&) = delete;

  // Something was written without being synced.
  void NoteWrite();

 private:
  void Run();

  rocksdb::DB& db_;
  const Duration interval_;
  Mutex mutex_;
  CondVar changed_;
  bool dirty_ HPS_GUARDED_BY(mutex_) = false;
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hps
