// Tells whoever waits for long work how far it is: at once, then a few times a second and not for
// every step.
//
// For one thread.
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
  // `function` may be empty; it and `clock` outlive the reporter.
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
