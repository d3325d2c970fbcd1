// An Inference for tests that can delay the lookups of the server core.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <vector>

#include "base/macros.h"
#include "base/mutex.h"
#include "server/core/inference.h"

namespace hps::server {

// Forwards to the core. Calls wait at Run while the gate is closed.
class GatedInference final : public Inference {
 public:
  explicit GatedInference(Inference& inference) : inference_(inference) {}

  absl::Status Prepare(InferenceCall& call) override {
    if (on_prepare != nullptr) HPS_RETURN_IF_ERROR(on_prepare(call));
    return inference_.Prepare(call);
  }
  void Run(InferenceCall& call) override {
    if (on_run != nullptr) on_run(call);
    {
      MutexLock lock(mutex_);
      if (closed_) {
        waiting_.push_back(&call);
        changed_.NotifyAll();
        return;
      }
    }
    inference_.Run(call);
  }

  void Cancel(InferenceCall& call) override {
    inference_.Cancel(call);
    MutexLock lock(mutex_);
    ++cancelled_;
    changed_.NotifyAll();
  }
  bool HasRoom() const override { return has_room && inference_.HasRoom(); }
  Duration TimeFor(Duration timeout) const override {
    return time_for == nullptr ? inference_.TimeFor(timeout) : time_for(timeout);
  }
  absl::Status ReserveBytes(uint64_t byte_count, Admission::Reservation* reservation) override {
    return inference_.ReserveBytes(byte_count, reservation);
  }

  // Called before the core's functions. Set them before the first call.
  std::function<absl::Status(const InferenceCall&)> on_prepare;
  std::function<void(InferenceCall&)> on_run;
  std::function<Duration(Duration)> time_for;  // replaces the core's
  std::atomic<bool> has_room = true;

  bool AwaitCancelled(size_t count) {
    MutexLock lock(mutex_);
    const Deadline deadline = DeadlineAfter(RealClock(), std::chrono::seconds(30));
    while (cancelled_ < count) {
      if (!changed_.WaitUntil(mutex_, deadline)) return false;
    }
    return true;
  }

  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  bool AwaitWaiting(size_t count) {
    MutexLock lock(mutex_);
    const Deadline deadline = DeadlineAfter(RealClock(), std::chrono::seconds(30));
    while (waiting_.size() < count) {
      if (!changed_.WaitUntil(mutex_, deadline)) return false;
    }
    return true;
  }
  void Open() {
    std::vector<InferenceCall*> calls;
    {
      MutexLock lock(mutex_);
      closed_ = false;
      calls.swap(waiting_);
    }
    for (InferenceCall* call : calls) inference_.Run(*call);
  }

 private:
  Inference& inference_;
  Mutex mutex_;
  CondVar changed_;
  size_t cancelled_ HPS_GUARDED_BY(mutex_) = 0;
  bool closed_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<InferenceCall*> waiting_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps::server
