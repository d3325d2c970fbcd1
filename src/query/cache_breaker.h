// Whether calls ask a device at all: one that did not answer in time, or has failed, is left alone
// for a while, so that not every call waits for it in vain. Shared by the sessions on one device.
// Thread-safe.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace hps {

class CacheBreaker {
 public:
  // How long it is left alone before one call tries it again.
  static constexpr Duration kRest = std::chrono::seconds(1);

  // Whether a call that begins now may ask.
  bool Admits(TimePoint now) {
    TimePoint until = until_.load(std::memory_order_relaxed);
    if (until == TimePoint()) return true;
    return now >= until &&
           until_.compare_exchange_strong(until, now + kRest, std::memory_order_relaxed);
  }

  // The call that asked last had no answer: it hangs, or has failed.
  bool is_down() const { return until_.load(std::memory_order_relaxed) != TimePoint(); }

  void NoteFailure(TimePoint now) { until_.store(now + kRest, std::memory_order_relaxed); }
  void NoteAnswer() {
    if (until_.load(std::memory_order_relaxed) != TimePoint())
      until_.store(TimePoint(), std::memory_order_relaxed);
  }

 private:
  std::atomic<TimePoint> until_{TimePoint()};  // TimePoint() = it answers
};

}  // namespace hps
