// An Inference for tests that can delay the lookups of the server core.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/macros.h"
#include "base/mutex.h"
#include "server/core/inference.h"
#include "testing/await.h"

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
        return;
      }
    }
    inference_.Run(call);
  }

  void Cancel(InferenceCall& call) override {
    inference_.Cancel(call);
    ++cancelled_;
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

  testing::AssertionResult AwaitCancelled(size_t count) {
    return AwaitCondition([&] { return cancelled_ >= count; });
  }

  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  testing::AssertionResult AwaitWaiting(size_t count) {
    return AwaitCondition([&] {
      MutexLock lock(mutex_);
      return waiting_.size() >= count;
    });
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
  std::atomic<size_t> cancelled_ = 0;
  Mutex mutex_;
  bool closed_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<InferenceCall*> waiting_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps::server
