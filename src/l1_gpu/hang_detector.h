// Limits the wait for a device before its memory is freed. Freeing itself waits without limit, so
// memory of a device that hangs is leaked instead. After a wait has timed out, later waits are
// short, until one finds that the device's work has completed.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/status/status.h"
#include "base/clock.h"

namespace hps {

class HangDetector {
 public:
  static constexpr Duration kMax = std::chrono::minutes(1);
  // Far longer than the work of a responsive device takes, so that its memory is freed.
  static constexpr Duration kAgain = std::chrono::seconds(1);

  explicit HangDetector(Duration at_most = kMax) : at_most_(at_most) {}

  Deadline deadline() const {
    const bool hangs = hangs_.load(std::memory_order_relaxed);
    return DeadlineAfter(RealClock(), hangs ? std::min(kAgain, at_most_) : at_most_);
  }

  // Records how a wait until deadline() ended; any end but a timeout shows that the device
  // responds. False if the device hangs.
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
