#include "import/parallel.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"

namespace hps {
namespace {

constexpr Duration kTickInterval = std::chrono::milliseconds(250);

class Steps {
 public:
  explicit Steps(const StepPlan& plan) : plan_(plan) {}

  void RunSome() {
    while (!failed_.load(std::memory_order_relaxed)) {
      const size_t step = next_.fetch_add(1, std::memory_order_relaxed);
      if (step >= plan_.step_count) return;
      absl::Status status = RunStep(step);
      if (!status.ok()) Fail(std::move(status));
    }
  }

  absl::Status RunStep(size_t step) {
    try {
      return plan_.step(step, failed_);
    } catch (const std::bad_alloc&) {
      return OutOfMemory("out of memory in a step");
    }
  }

  void Fail(absl::Status status) {
    MutexLock lock(mutex_);
    if (first_error_.ok()) first_error_ = std::move(status);
    failed_.store(true, std::memory_order_relaxed);
  }

  absl::Status first_error() {
    MutexLock lock(mutex_);
    return first_error_;
  }

 private:
  const StepPlan& plan_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  Mutex mutex_;
  absl::Status first_error_ HPS_GUARDED_BY(mutex_);
};

class Lane final : public Task {
 public:
  Lane(Steps& steps, Latch& done) : steps_(steps), done_(done) {}
  void Run() override {
    steps_.RunSome();
    done_.CountDown();
  }

 private:
  Steps& steps_;
  Latch& done_;
};

}  // namespace

absl::Status RunSteps(Executor& executor, const StepPlan& plan) {
  Steps steps(plan);
  const size_t lane_count = std::min(plan.lane_count, plan.step_count);
  Latch done(lane_count);
  std::deque<Lane> lanes;
  for (size_t i = 0; i < lane_count; ++i) lanes.emplace_back(steps, done);
  // From here on the lanes use objects on this stack, so this function must not return before they
  // have ended.
  for (Lane& lane : lanes) {
    if (absl::Status posted = executor.Post(&lane); !posted.ok()) {
      steps.Fail(std::move(posted));
      done.CountDown();
    }
  }
  std::exception_ptr thrown;
  while (!executor.Await(done, DeadlineAfter(executor.clock(), kTickInterval))) {
    if (!plan.tick || thrown != nullptr) continue;
    try {
      plan.tick();
    } catch (...) {
      thrown = std::current_exception();
      steps.Fail(absl::CancelledError());
    }
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return steps.first_error();
}

}  // namespace hps
