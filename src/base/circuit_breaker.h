// Whether lookups ask a level at all. A level that has failed, or did not answer in time, is
// bypassed for a second, so that not every lookup waits for it; then one lookup probes it. One for
// each device (level 1), and one for each part of a table's level 2 that can block. Thread-safe.
//
// A lookup that bypasses a part of level 2 may show a row that is newer than the part's: FetchJob
// then puts the part into quarantine (tier/fence.h) until the changes that are open have been
// applied.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace hps {

class CircuitBreaker {
 public:
  // How long the level is bypassed before one lookup probes it.
  static constexpr Duration kRest = std::chrono::seconds(1);

  // Whether a lookup may ask the level now. True for one lookup only when kRest has passed: that
  // lookup is the probe.
  bool Admits(TimePoint now) {
    TimePoint until = until_.load(std::memory_order_relaxed);
    if (until == TimePoint()) return true;
    return now >= until &&
           until_.compare_exchange_strong(until, now + kRest, std::memory_order_relaxed);
  }

  // The level's last answer was a failure, or none came.
  bool is_open() const { return until_.load(std::memory_order_relaxed) != TimePoint(); }

  void NoteFailure(TimePoint now) { until_.store(now + kRest, std::memory_order_relaxed); }
  void NoteAnswer() {
    if (until_.load(std::memory_order_relaxed) != TimePoint())
      until_.store(TimePoint(), std::memory_order_relaxed);
  }

 private:
  std::atomic<TimePoint> until_{TimePoint()};  // TimePoint() = closed: the level answers
};

}  // namespace hps
