// Time as a value that can be injected: a test or a simulation brings its own clock.
#pragma once

#include <chrono>

namespace hps {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

// A deadline is a point in time; TimePoint::max() = none.
using Deadline = TimePoint;
inline constexpr Deadline kNoDeadline = Deadline::max();

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The machine's monotonic clock; lives as long as the process.
const Clock& RealClock();

// now + timeout without overflow: a very long timeout is no deadline.
Deadline DeadlineAfter(const Clock& clock, Duration timeout);

}  // namespace hps
