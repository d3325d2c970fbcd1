// The server's own part of an InferenceCall: what it validated, what it holds, and when what
// happened.
//
// Belongs to its call, and like it to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"

namespace hps::server {

class ServerModel;
struct ModelQueue;

struct CallState {
  static constexpr size_t kNoSlot = static_cast<size_t>(-1);

  explicit CallState(InferenceCall& owner) : call(&owner) {}

  static CallState& Of(InferenceCall& call) { return *call.prepared_; }

  // Gives back what the call holds, and counts the time that it took when it was answered.
  void Reset();

  // Ends the call: counts it, lets go of the model's version, and hands it back to the codec.
  void Finish(const absl::Status& status);

  InferenceCall* const call;
  ServerModel* model = nullptr;  // null: not prepared
  const Clock* clock = nullptr;
  ModelVersionRef version;
  std::string version_text;
  Admission::Reservation reservation;
  ExecutionPlan plan;
  Deadline deadline = kNoDeadline;         // it is not begun after this
  Deadline lookup_deadline = kNoDeadline;  // rows that have not come by then are given up
  TimePoint arrival{};
  TimePoint run_at{};      // handed over by the codec
  TimePoint started_at{};  // its lookup began
  TimePoint done_at{};
  bool answered = false;  // OnDone was called with OK
  // The client has gone or cancelled. Set by any thread, before it looks where the call is.
  std::atomic<bool> cancelled = false;
  // Of the batch queue, under its lock: whether the call waits there, and the slot that took it.
  bool is_waiting = false;
  size_t slot = kNoSlot;
  // Of the slot's runner, under its lock: whether it is being looked up.
  bool in_lookup = false;
  // Of the list that it is in, whatever that is.
  CallState* next = nullptr;
  CallState* previous = nullptr;
};

// What calls end with that are not answered; made beforehand, so that ending one takes no memory.
struct TerminalStatuses {
  static const TerminalStatuses& Get();

  absl::Status cancelled;       // its client has gone or cancelled
  absl::Status late_in_queue;   // its deadline passed while it waited
  absl::Status late_in_lookup;  // ... while it was looked up
  absl::Status waited_unread;   // the server was too busy to read it in time
};

// First in, first out. A call is in at most one list. Not thread-safe.
class CallList {
 public:
  void Push(CallState* call) {
    call->next = nullptr;
    call->previous = empty() ? nullptr : tail_;
    (empty() ? head_ : tail_->next) = call;
    tail_ = call;
    ++size_;
  }
  CallState* Pop() {
    CallState* call = head_;
    if (call != nullptr) Remove(call);
    return call;
  }
  // REQUIRES: it is in this list.
  void Remove(CallState* call) {
    (call->previous == nullptr ? head_ : call->previous->next) = call->next;
    (call->next == nullptr ? tail_ : call->next->previous) = call->previous;
    call->next = call->previous = nullptr;
    --size_;
  }
  CallState* head() const { return head_; }
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }

 private:
  CallState* head_ = nullptr;
  CallState* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hps::server
