#include "import/parallel.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

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
      absl::Status status = Try([&] { return plan_.step(step, failed_); });
      if (!status.ok()) Fail(std::move(status));
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

}  // namespace

absl::Status RunSteps(Executor& executor, const StepPlan& plan) {
  Steps steps(plan);
  const size_t lane_count = std::min(plan.lane_count, plan.step_count);
  Latch done(lane_count);
  std::vector<FunctionTask> lanes(lane_count, FunctionTask([&] {
                                    steps.RunSome();
                                    done.CountDown();
                                  }));
  // From here on the lanes use objects on this stack, so this function must not return before they
  // have ended.
  for (FunctionTask& lane : lanes) {
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
