// Keeps apart what RocksDB 7.8.3 does not: a change of memtables, and the end of a column family
// that was dropped.
//
// When a write or a flush begins a new memtable, RocksDB lists the empty column families, lets go
// of its mutex to write the MANIFEST, and looks at them again. One that was dropped before and is
// freed meanwhile is read after it is gone.
#pragma once

#include <cstddef>

#include "base/mutex.h"

namespace hps {

// Thread-safe. Each side is held around one call of RocksDB and never twice by one thread. Whoever
// waits to free a family goes before writes that come later.
class SwitchGate {
 public:
  // Around calls that may change memtables; any number at a time.
  class Switching {
   public:
    explicit Switching(SwitchGate& gate) : gate_(gate) {
      MutexLock lock(gate_.mutex_);
      while (gate_.freeing_) gate_.changed_.Wait(gate_.mutex_);
      ++gate_.switching_count_;
    }
    ~Switching() {
      MutexLock lock(gate_.mutex_);
      if (--gate_.switching_count_ == 0) gate_.changed_.NotifyAll();
    }
    Switching(const Switching&) = delete;
    Switching& operator=(const Switching&) = delete;

   private:
    SwitchGate& gate_;
  };

  // Around calls that may free a dropped family; alone.
  class Freeing {
   public:
    explicit Freeing(SwitchGate& gate) : gate_(gate) {
      MutexLock lock(gate_.mutex_);
      while (gate_.freeing_) gate_.changed_.Wait(gate_.mutex_);
      gate_.freeing_ = true;
      while (gate_.switching_count_ > 0) gate_.changed_.Wait(gate_.mutex_);
    }
    ~Freeing() {
      MutexLock lock(gate_.mutex_);
      gate_.freeing_ = false;
      gate_.changed_.NotifyAll();
    }
    Freeing(const Freeing&) = delete;
    Freeing& operator=(const Freeing&) = delete;

   private:
    SwitchGate& gate_;
  };

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t switching_count_ HPS_GUARDED_BY(mutex_) = 0;
  bool freeing_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
