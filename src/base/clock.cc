#include "base/clock.h"

namespace hps {
namespace {

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& RealClock() {
  static const SteadyClock clock;
  return clock;
}

Deadline DeadlineAfter(const Clock& clock, Duration timeout) {
  const TimePoint now = clock.Now();
  return timeout > kNoDeadline - now ? kNoDeadline : now + timeout;
}

}  // namespace hps
