// How long who frees memory of a device waits before for the device's work. Freeing itself waits
// without end: on a device that hangs the memory is left to it instead. Whoever waits in vain tells
// those that come after, who then wait for a moment only; until one finds that the work is done.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/status/status.h"
#include "base/clock.h"

namespace hps {

class LastWait {
 public:
  static constexpr Duration kMax = std::chrono::minutes(1);
  // Far longer than what a device that answers is at work on, so that it gives its memory back.
  static constexpr Duration kAgain = std::chrono::seconds(1);

  explicit LastWait(Duration at_most = kMax) : at_most_(at_most) {}

  Deadline deadline() const {
    const bool hangs = hangs_.load(std::memory_order_relaxed);
    return DeadlineAfter(RealClock(), hangs ? std::min(kAgain, at_most_) : at_most_);
  }

  // How a wait until deadline() has ended: any end but that of the time tells that the device
  // answers. True unless it hangs.
  bool Answers(const absl::Status& waited) {
    const bool hangs = absl::IsDeadlineExceeded(waited);
    hangs_.store(hangs, std::memory_order_relaxed);
    return !hangs;
  }

 private:
  const Duration at_most_;
  std::atomic<bool> hangs_{false};
};

}  // namespace hps
