// Whether calls ask a device at all: one that did not answer in time is left alone for a while, so
// that not every call waits for it in vain. Shared by the sessions on one device. Thread-safe.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace hps {

class CacheBreaker {
 public:
  // How long a device that hangs is left alone before one call tries it again.
  static constexpr Duration kRest = std::chrono::seconds(1);

  // Whether a call that begins now may ask.
  bool Admits(TimePoint now) {
    TimePoint until = until_.load(std::memory_order_relaxed);
    if (until == TimePoint()) return true;
    return now >= until &&
           until_.compare_exchange_strong(until, now + kRest, std::memory_order_relaxed);
  }

  void NoteHang(TimePoint now) { until_.store(now + kRest, std::memory_order_relaxed); }
  void NoteAnswer() {
    if (until_.load(std::memory_order_relaxed) != TimePoint())
      until_.store(TimePoint(), std::memory_order_relaxed);
  }

 private:
  std::atomic<TimePoint> until_{TimePoint()};  // TimePoint() = it answers
};

}  // namespace hps
