// Limits an average rate: how much of something may pass per second.
//
// A message is counted after it has passed, because it passes as a whole. After one that was too
// large, the limiter waits until the average holds again. At most one second of unused time counts.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace hps {

class RateLimiter {
 public:
  // `per_second` = 0: no limit.
  explicit RateLimiter(uint64_t per_second) : per_second_(per_second) {}

  void Take(uint64_t amount, TimePoint now) {
    if (per_second_ == 0) return;
    const double seconds = static_cast<double>(amount) / static_cast<double>(per_second_);
    ready_ = std::max(ready_, now - kUnusedMax) +
             std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

  // When more may pass; in the past: now.
  TimePoint ready() const { return ready_; }

 private:
  static constexpr Duration kUnusedMax = std::chrono::seconds(1);

  const uint64_t per_second_;
  TimePoint ready_{};
};

}  // namespace hps
