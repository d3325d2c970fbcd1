// Excludes two operations that RocksDB 7.8.3 must not run concurrently: the switch to a new
// memtable, and the release of a dropped column family.
//
// When a write or a flush begins a new memtable, RocksDB lists the empty column families, releases
// its mutex to write the MANIFEST, and then accesses the listed families again. If a dropped family
// is freed in between, RocksDB reads freed memory.
#pragma once

#include <cstddef>

#include "base/mutex.h"

namespace hps {

// Thread-safe. Each guard is held around one call of RocksDB and never twice by one thread. A
// thread that waits for exclusive access goes before later shared accesses.
class MemtableSwitchLock {
 public:
  // Around calls that may switch memtables; shared.
  class SharedGuard {
   public:
    explicit SharedGuard(MemtableSwitchLock& owner) : owner_(owner) {
      MutexLock lock(owner_.mutex_);
      while (owner_.freeing_) owner_.changed_.Wait(owner_.mutex_);
      ++owner_.switching_count_;
    }
    ~SharedGuard() {
      MutexLock lock(owner_.mutex_);
      if (--owner_.switching_count_ == 0) owner_.changed_.NotifyAll();
    }
    SharedGuard(const SharedGuard&) = delete;
    SharedGuard& operator=(const SharedGuard&) = delete;

   private:
    MemtableSwitchLock& owner_;
  };

  // Around calls that may free a dropped family, or that need a log without a write in progress;
  // exclusive.
  class ExclusiveGuard {
   public:
    explicit ExclusiveGuard(MemtableSwitchLock& owner) : owner_(owner) {
      MutexLock lock(owner_.mutex_);
      while (owner_.freeing_) owner_.changed_.Wait(owner_.mutex_);
      owner_.freeing_ = true;
      while (owner_.switching_count_ > 0) owner_.changed_.Wait(owner_.mutex_);
    }
    ~ExclusiveGuard() {
      MutexLock lock(owner_.mutex_);
      owner_.freeing_ = false;
      owner_.changed_.NotifyAll();
    }
    ExclusiveGuard(const ExclusiveGuard&) = delete;
    ExclusiveGuard& operator=(const ExclusiveGuard&) = delete;

   private:
    MemtableSwitchLock& owner_;
  };

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t switching_count_ HPS_GUARDED_BY(mutex_) = 0;
  bool freeing_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
