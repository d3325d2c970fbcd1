// Waits of tests for what another thread does. A wait that ends in vain fails with a text that
// begins with kMissedWait: tools/run_tests.py tells by it a test that was late from one that was
// wrong.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

#include "base/clock.h"
#include "base/executor.h"

namespace hps {

inline constexpr const char* kMissedWait = "missed wait: ";
inline constexpr Duration kAwaitMax = std::chrono::seconds(60);

// Asks again and again. False: the condition did not hold in time.
template <typename Condition>
bool HoldsInTime(Condition condition, Duration wait_max = kAwaitMax) {
  const Deadline deadline = DeadlineAfter(RealClock(), wait_max);
  Latch never(1);
  while (!condition()) {
    if (RealClock().Now() > deadline) return false;
    never.WaitUntil(DeadlineAfter(RealClock(), std::chrono::milliseconds(1)));
  }
  return true;
}

inline testing::AssertionResult MissedWait(Duration wait_max) {
  return testing::AssertionFailure() << kMissedWait << "nothing came within "
                                     << std::chrono::duration<double>(wait_max).count() << " s";
}

// The same for EXPECT_TRUE and ASSERT_TRUE: where another thread gives no sign.
template <typename Condition>
testing::AssertionResult AwaitCondition(Condition condition, Duration wait_max = kAwaitMax) {
  if (HoldsInTime(condition, wait_max)) return testing::AssertionSuccess();
  return MissedWait(wait_max);
}

// Until the latch is open.
inline testing::AssertionResult AwaitLatch(Latch& latch, Duration wait_max = kAwaitMax) {
  if (latch.WaitUntil(DeadlineAfter(RealClock(), wait_max))) return testing::AssertionSuccess();
  return MissedWait(wait_max);
}

}  // namespace hps
