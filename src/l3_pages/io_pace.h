// Bounds the rate at which a background job reads and writes.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/hash.h"

namespace hps {

class IoPace {
 public:
  // Zero bytes per second: no bound.
  explicit IoPace(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Notes a transfer that ends now. Returns when the job may go on. Time in which the job did
  // something else is not made up for, so that the rate is kept over every interval.
  TimePoint Take(uint64_t bytes, TimePoint now) {
    if (bytes_per_second_ == 0) return now;
    const Uint128 nanoseconds = Uint128{bytes} * 1'000'000'000 / bytes_per_second_;
    const Duration taken(static_cast<int64_t>(std::min<Uint128>(nanoseconds, kWaitMax.count())));
    next_ = std::min(std::max(next_, now) + taken, now + kWaitMax);
    return next_;
  }

 private:
  static constexpr Duration kWaitMax = std::chrono::hours(24 * 365);  // sums can't overflow

  const uint64_t bytes_per_second_;
  TimePoint next_{};
};

}  // namespace hps
