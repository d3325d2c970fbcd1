// The session's side of a LookupCancel: which latch the look-up waits for right now.
//
// Thread-safe.
#pragma once

#include "base/executor.h"
#include "base/mutex.h"
#include "hps/lookup_cancel.h"

namespace hps {

class CancelPoint final : public LookupCancel {
 public:
  // Of a request; null for null.
  static CancelPoint* Of(LookupCancel* cancel) { return static_cast<CancelPoint*>(cancel); }

  void Cancel() override;
  bool is_cancelled() const override;
  void Reset() override;

  // executor.Await of a latch, which also ends when the look-up is cancelled. `point` may be null.
  static bool Await(CancelPoint* point, Executor& executor, Latch& latch, Deadline deadline);

 private:
  void SetLatch(Latch* latch);

  mutable Mutex mutex_;
  bool cancelled_ HPS_GUARDED_BY(mutex_) = false;
  Latch* latch_ HPS_GUARDED_BY(mutex_) = nullptr;  // that somebody waits for
};

}  // namespace hps
