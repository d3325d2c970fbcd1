// A request with its plan, on its way to an answer; and lists of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "absl/status/status.h"
#include "base/clock.h"
#include "inference/execution_plan.h"

namespace hps {

// No request waits for longer.
inline constexpr Duration kRequestTimeMax = std::chrono::hours(1);

// When a request that came at `arrival` gives up missing rows. Without a time-out (zero) it does
// not wait for rows at all.
inline Deadline LookupDeadline(TimePoint arrival, Duration timeout) {
  if (timeout <= Duration::zero()) return Deadline::min();
  return arrival + std::min(timeout, kRequestTimeMax);
}

// Belongs to one thread at a time.
struct PlannedRequest {
  PlannedRequest() = default;
  PlannedRequest(const PlannedRequest&) = delete;
  PlannedRequest& operator=(const PlannedRequest&) = delete;
  virtual ~PlannedRequest() = default;

  // It has ended. OK: its outputs are complete, with default rows where rows have not come in time.
  // Otherwise they may be partly written. Must not throw.
  virtual void Finish(const absl::Status& status) = 0;

  ExecutionPlan plan;
  // Rows that have not come by then are given up (LookupDeadline).
  Deadline lookup_deadline = kNoDeadline;
  // The client has gone or cancelled. Any thread sets it.
  std::atomic<bool> cancelled = false;
  // Set by the batch core: its rows had not all come by its deadline.
  bool is_late = false;
  // Of the batch core that has it, under its lock: whether it is being looked up.
  bool in_lookup = false;
  // Of the list that it is in, whatever that is.
  PlannedRequest* next = nullptr;
  PlannedRequest* previous = nullptr;
};

// First in, first out. A request is in at most one list. Takes no memory. Not thread-safe.
template <typename Request = PlannedRequest>
class RequestList {
 public:
  void Push(Request* request) {
    request->next = nullptr;
    request->previous = empty() ? nullptr : tail_;
    (empty() ? head_ : tail_->next) = request;
    tail_ = request;
    ++size_;
  }
  // Null when it is empty.
  Request* Pop() {
    Request* request = head();
    if (request != nullptr) Remove(request);
    return request;
  }
  // REQUIRES: it is in this list.
  void Remove(Request* request) {
    (request->previous == nullptr ? head_ : request->previous->next) = request->next;
    (request->next == nullptr ? tail_ : request->next->previous) = request->previous;
    request->next = request->previous = nullptr;
    --size_;
  }
  Request* head() const { return static_cast<Request*>(head_); }
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }

 private:
  PlannedRequest* head_ = nullptr;
  PlannedRequest* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hps
