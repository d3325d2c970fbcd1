// A short wait that keeps its core: for what another thread or a device does within microseconds,
// where blocking and being woken would take longer than the wait.
//
// Every such wait has a limit, after which the waiter blocks or gives up.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace hps {

// Tells the core that this is a wait, so that it leaves more to the core's other thread.
inline void PauseCore() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class SpinLimit {
 public:
  explicit SpinLimit(Duration duration) : end_(DeadlineAfter(RealClock(), duration)) {}

  // Lets a moment pass. False when the time is up, which is looked at only now and then, because a
  // look costs as much as a few rounds.
  bool Spin() {
    PauseCore();
    return ++rounds_ % kRoundsPerLook != 0 || RealClock().Now() < end_;
  }

 private:
  static constexpr uint32_t kRoundsPerLook = 16;

  const TimePoint end_;
  uint32_t rounds_ = 0;
};

}  // namespace hps
