// How often a client may ping while nothing is answered: once in a period, and some times sooner.
//
// What a network holds up comes sooner after what came before it, and later after that: so it is
// the pings' mean that counts, not each time between two of them.
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
  // Something was answered: what came before does not count.
  void Reset() { next_ = {}; }

 private:
  TimePoint next_{};  // when the next one would be in time
};

}  // namespace hps::server
