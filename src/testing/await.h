// Waits for what another thread does, where it gives no sign.
#pragma once

#include <chrono>

#include "base/clock.h"
#include "base/executor.h"

namespace hps {

// Asks again and again. False: the condition did not hold in time.
template <typename Condition>
bool AwaitCondition(Condition condition, Duration wait_max = std::chrono::seconds(60)) {
  const Deadline deadline = DeadlineAfter(RealClock(), wait_max);
  Latch never(1);
  while (!condition()) {
    if (RealClock().Now() > deadline) return false;
    never.WaitUntil(DeadlineAfter(RealClock(), std::chrono::milliseconds(1)));
  }
  return true;
}

}  // namespace hps
