// An executor for tests and simulations. It has no threads: tasks run when the test says so, in an
// order chosen by the test or a seed, on a clock that only the test advances.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/executor.h"

namespace hps {

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Advance(Duration step) { now_ += step; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

// Not thread-safe.
class ManualExecutor final : public Executor {
 public:
  // Await runs the queued tasks in an order drawn from `seed`; 0 = the order of posting.
  explicit ManualExecutor(uint64_t seed = 0, size_t queue_max = 1024)
      : random_(seed), in_order_(seed == 0), queue_max_(queue_max) {
    queue_.reserve(queue_max);  // as with threads, posting needs no memory
  }

  absl::Status Post(Task* task) override;
  // Runs tasks until the latch is open. If none is left, or while held, the clock advances to the
  // deadline.
  bool Await(Latch& latch, Deadline deadline) override;
  const Clock& clock() const override { return clock_; }
  size_t thread_count() const override { return 1; }

  ManualClock& manual_clock() { return clock_; }
  size_t queued_count() const override { return queue_.size(); }
  // While held, Await runs no task, so it times out.
  void Hold(bool held) { held_ = held; }
  void RunOne();  // REQUIRES: queued_count() > 0
  void RunAll();

 private:
  ManualClock clock_;
  std::mt19937_64 random_;
  const bool in_order_;
  const size_t queue_max_;
  bool held_ = false;
  std::vector<Task*> queue_;
};

}  // namespace hps
