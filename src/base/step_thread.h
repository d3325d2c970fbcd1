// A thread that calls a function again and again until it is ended. The function does one step of
// the owner's work, and says how long the thread waits before the next one. An end does not wait
// for that.
//
// Start once; it and End are for the owner, is_ending for any thread. Declare the thread as the
// owner's last member: then it ends before what its steps use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/macros.h"

namespace hps {

class StepThread final : private Task {
 public:
  StepThread() = default;
  ~StepThread() override { End(); }
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;

  // Errors: RESOURCE_EXHAUSTED.
  absl::Status Start(const std::string& name, std::function<Duration()> step) {
    step_ = std::move(step);
    HPS_ASSIGN_OR_RETURN(thread_, WorkerPool::Create({.name = name, .queue_max = 1}));
    return thread_->Post(this);
  }

  // Returns after the step that is under way, if there is one.
  void End() {
    if (thread_ == nullptr) return;
    ending_.CountDown();
    thread_.reset();
  }

  bool is_ending() const { return ending_.IsOpen(); }

 private:
  void Run() override {
    while (!is_ending() && !ending_.WaitUntil(DeadlineAfter(RealClock(), step_()))) continue;
  }

  std::function<Duration()> step_;
  Latch ending_{1};
  std::unique_ptr<WorkerPool> thread_;
};

}  // namespace hps
