#include "query/fetch/cancel_point.h"

#include "base/macros.h"

namespace hps {

LookupCancel::LookupCancel() : point_(std::make_unique<CancelPoint>()) {}
LookupCancel::~LookupCancel() = default;
void LookupCancel::Cancel() { point_->Cancel(); }
bool LookupCancel::is_cancelled() const { return point_->is_cancelled(); }
void LookupCancel::Reset() { point_->Reset(); }

void CancelPoint::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  // Under the lock, so that the waiter, which takes it too, does not leave while the latch is used.
  if (latch_ != nullptr) latch_->Interrupt();
}

bool CancelPoint::is_cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

void CancelPoint::Reset() {
  MutexLock lock(mutex_);
  HPS_CHECK(latch_ == nullptr);
  cancelled_ = false;
}

void CancelPoint::SetLatch(Latch* latch) {
  MutexLock lock(mutex_);
  latch_ = latch;
  if (latch != nullptr && cancelled_) latch->Interrupt();
}

bool CancelPoint::Await(CancelPoint* point, Executor& executor, Latch& latch, Deadline deadline) {
  if (point == nullptr) return executor.Await(latch, deadline);
  point->SetLatch(&latch);
  const bool is_open = executor.Await(latch, deadline);
  point->SetLatch(nullptr);
  return is_open;
}

}  // namespace hps
