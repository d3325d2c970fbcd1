// What the threads of a store tell its merger (change_merger.h), and what the merger has done.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "l3_rocksdb/family.h"

namespace hps {

class MergeQueue {
 public:
  // The changes of some table may be due.
  void Request() {
    MutexLock lock(mutex_);
    requested_ = true;
    requested_changed_.NotifyAll();
  }

  // The last reader of a family that was merged has left. The merger drops the family, because that
  // takes time which the reader may not have.
  void Retire(std::unique_ptr<Family> family) {
    {
      MutexLock lock(mutex_);
      retired_.push_back(std::move(family));
    }
    Request();
  }
  std::vector<std::unique_ptr<Family>> TakeRetired() {
    MutexLock lock(mutex_);
    return std::exchange(retired_, {});
  }

  // Waits for a request since the last call, or until the deadline.
  void Await(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!requested_) {
      if (deadline == kNoDeadline) {
        requested_changed_.Wait(mutex_);
      } else if (!requested_changed_.WaitUntil(mutex_, deadline)) {
        break;
      }
    }
    requested_ = false;
  }

  // See DurableStatistics.
  std::atomic<uint64_t> merges{0};
  std::atomic<uint64_t> merged_bytes{0};
  std::atomic<uint64_t> merges_failed{0};

 private:
  Mutex mutex_;
  CondVar requested_changed_;
  bool requested_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Family>> retired_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
