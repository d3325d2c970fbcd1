// Limits a rate: how much of something may pass per second.
//
// An amount is counted after it has passed, because it passes as a whole. Then the limiter waits
// until the rate holds again. Time that was not used counts for later up to a maximum: none keeps
// the rate over every interval, a second keeps the average.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/hash.h"

namespace hps {

class RateLimiter {
 public:
  static constexpr Duration kLongestWait = std::chrono::hours(24 * 365);  // sums can't overflow

  // `per_second` = 0: no limit. `unused_max`: unused time that counts for later. No amount makes
  // the limiter wait longer than `wait_max`.
  RateLimiter(uint64_t per_second, Duration unused_max, Duration wait_max = kLongestWait)
      : per_second_(per_second), unused_max_(unused_max), wait_max_(wait_max) {}

  // Notes an amount that has passed. Returns ready(), and `now` without a limit.
  TimePoint Take(uint64_t amount, TimePoint now) {
    if (per_second_ == 0) return now;
    const Uint128 nanoseconds = Uint128{amount} * 1'000'000'000 / per_second_;
    const Duration taken(static_cast<int64_t>(std::min<Uint128>(nanoseconds, wait_max_.count())));
    ready_ = std::min(std::max(ready_, now - unused_max_) + taken, now + wait_max_);
    return ready_;
  }

  // When more may pass; in the past: now.
  TimePoint ready() const { return ready_; }

 private:
  const uint64_t per_second_;
  const Duration unused_max_;
  const Duration wait_max_;
  TimePoint ready_{};
};

}  // namespace hps
