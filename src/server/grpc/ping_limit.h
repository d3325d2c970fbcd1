// Limits how often a client may ping while the server answers nothing: on average once in a period.
//
// The network can delay a ping, so that the next one follows it too soon. So the average counts,
// not the time between two pings.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace hps::server {

class PingLimit {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(10);
  static constexpr int kSoonerMax = 2;

  // Whether a ping may come now.
  bool Admit(TimePoint now) {
    if (next_ - now > kSoonerMax * kPeriod) return false;
    next_ = std::max(next_, now) + kPeriod;
    return true;
  }
  // The server has answered something: earlier pings do not count.
  void Reset() { next_ = {}; }

 private:
  TimePoint next_{};  // when the next ping is in time
};

}  // namespace hps::server
