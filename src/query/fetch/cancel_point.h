// The implementation of LookupCancel: which latch the running lookup waits for.
//
// Thread-safe.
#pragma once

#include "base/executor.h"
#include "base/mutex.h"
#include "hps/lookup_cancel.h"

namespace hps {

class CancelPoint {
 public:
  // The implementation of a request's `cancel`, which may be null.
  static CancelPoint* Of(const LookupCancel* cancel) {
    return cancel == nullptr ? nullptr : cancel->point_.get();
  }

  void Cancel();
  bool is_cancelled() const;
  void Reset();

  // As executor.Await, but also ends when the lookup is cancelled. `point` may be null.
  static bool Await(CancelPoint* point, Executor& executor, Latch& latch, Deadline deadline);

 private:
  void SetLatch(Latch* latch);

  mutable Mutex mutex_;
  bool cancelled_ HPS_GUARDED_BY(mutex_) = false;
  Latch* latch_ HPS_GUARDED_BY(mutex_) = nullptr;  // null: no wait is running
};

}  // namespace hps
