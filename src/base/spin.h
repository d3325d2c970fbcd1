// A short busy wait, for events that another thread or a device causes within microseconds.
// Blocking and being woken would take longer.
//
// Every such wait has a limit, after which the waiter blocks or fails.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace hps {

// Tells the core that this is a busy wait, so that its sibling thread gets more of the core.
inline void PauseCore() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class SpinLimit {
 public:
  explicit SpinLimit(Duration duration) : end_(DeadlineAfter(RealClock(), duration)) {}

  // Pauses for a moment. False if the time is up. The clock is read only once in several rounds,
  // because reading it costs as much as a few rounds.
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
