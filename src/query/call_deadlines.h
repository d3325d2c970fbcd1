// How long the steps of one call may wait: until its deadline, or until it is cancelled.
//
// A level that hangs must leave those below it time to answer. So a part of level 2, and a device
// whose rows the host's levels can answer in its place, have half of the time that is left. A
// device that has to write the outputs itself has all of it, in which the caller's stream may be at
// work, too.
//
// A device is waited for 100 ms at least: one that works may first have to copy the rows of other
// large calls, and must not be taken for one that hangs. It is waited for 1 s at most, because a
// device answers in microseconds, and for 1 min where only it can answer: a thread must come back
// from a device that hangs.
//
// Belongs to one session; for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.h"
#include "hps/span.h"
#include "query/fetch/cancel_point.h"

namespace hps {

class CallDeadlines {
 public:
  // `timeout_default` is of calls that name none.
  CallDeadlines(const Clock& clock, Duration timeout_default)
      : clock_(clock), timeout_default_(timeout_default) {}

  // Begins a call; `cancel` may be null.
  void Begin(std::optional<Duration> timeout_of_call, CancelPoint* cancel) {
    const Duration timeout = timeout_of_call.value_or(timeout_default_);
    may_wait_ = timeout > Duration::zero();
    deadline_ = DeadlineAfter(clock_, std::max(timeout, Duration::zero()));
    half_time_ = deadline_ == kNoDeadline ? deadline_ : deadline_ - timeout / 2;
    outputs_deadline_ = std::min(deadline_, DeadlineAfter(clock_, kOutputsWaitMax));
    cancel_ = cancel;
  }

  Deadline of_call() const { return deadline_; }

  // For a part of level 2 that is asked now.
  Deadline OfL2() const {
    if (deadline_ == kNoDeadline) return kNoDeadline;
    const TimePoint now = clock_.Now();
    return now + std::max(deadline_ - now, Duration::zero()) / 2;
  }

  // For a wait for the device that begins now; `outputs` are there.
  Deadline OfDevice(MemorySpace outputs) const {
    const TimePoint now = clock_.Now();
    if (outputs == MemorySpace::kDevice) {
      if (is_cancelled()) return now + kDeviceWaitMin;
      // Also where the other levels have taken most of the time.
      const Deadline at_least =
          now + std::clamp<Duration>(deadline_ - now, kDeviceWaitMin, kDeviceWaitMax);
      return std::max(outputs_deadline_, at_least);
    }
    if (deadline_ == kNoDeadline) return now + kDeviceWaitMax;
    return now + std::clamp<Duration>((deadline_ - now) / 2, kDeviceWaitMin, kDeviceWaitMax);
  }

  // Whether a part of level 2 that can block may still be asked. A later piece of a call may have
  // little time left: too little to tell a part that hangs from one that works.
  bool MayBlock() const { return deadline_ == kNoDeadline || clock_.Now() <= half_time_; }

  // Whether a call that was to wait has used up its time.
  bool IsExceeded() const { return may_wait_ && clock_.Now() >= deadline_; }

  CancelPoint* cancel() const { return cancel_; }
  bool is_cancelled() const { return cancel_ != nullptr && cancel_->is_cancelled(); }

 private:
  static constexpr Duration kDeviceWaitMin = std::chrono::milliseconds(100);
  static constexpr Duration kDeviceWaitMax = std::chrono::seconds(1);
  static constexpr Duration kOutputsWaitMax = std::chrono::minutes(1);

  const Clock& clock_;
  const Duration timeout_default_;
  Deadline deadline_ = kNoDeadline;
  Deadline half_time_ = kNoDeadline;
  Deadline outputs_deadline_ = kNoDeadline;  // where they are on the device
  bool may_wait_ = true;
  CancelPoint* cancel_ = nullptr;
};

}  // namespace hps
