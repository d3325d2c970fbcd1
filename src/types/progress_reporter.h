// Reports the progress of long work: at once, then a few times per second rather than at every
// step.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "hps/transfer.h"

namespace hps {

inline constexpr Duration kProgressInterval = std::chrono::milliseconds(250);

class ProgressReporter {
 public:
  // `function` may be empty; it and `clock` must outlive the reporter.
  ProgressReporter(const ProgressFunction& function, uint64_t total,
                   const Clock& clock = RealClock())
      : function_(function), total_(total), clock_(clock), due_(clock.Now()) {}

  void Report(const std::string& step, uint64_t done) {
    if (!function_ || clock_.Now() < due_) return;
    function_({.step = step, .done = done, .total = total_});
    due_ = clock_.Now() + kProgressInterval;
  }

 private:
  const ProgressFunction& function_;
  const uint64_t total_;
  const Clock& clock_;
  TimePoint due_;
};

}  // namespace hps
