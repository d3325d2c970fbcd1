#include "inference/batch_core.h"

#include <algorithm>

#include "base/out_of_memory.h"

namespace hps {
namespace {

Deadline EarliestDeadline(const RequestList<>& requests) {
  Deadline earliest = kNoDeadline;
  for (const PlannedRequest* request = requests.head(); request != nullptr; request = request->next)
    earliest = std::min(earliest, request->lookup_deadline);
  return earliest;
}

}  // namespace

const absl::Status& BatchCore::Cancelled() {
  static const absl::Status cancelled =
      absl::CancelledError("the client gave the request up, or the server cut it off");
  return cancelled;
}

BatchCore::BatchCore(const Options& options)
    : options_(options),
      late_(absl::DeadlineExceededError("the rows had not all come by the deadline")),
      executor_({.slot = options.slot, .keys_max = options.keys_max, .clock = options.clock}) {
  Cancelled();
}

void BatchCore::Run(ModelVersion& version, RequestList<> requests, OnLookup on_lookup) {
  absl::Status status;
  requests = EndCancelled(requests);
  while (status.ok() && !requests.empty()) {
    const Deadline deadline = EarliestDeadline(requests);
    BeginLookup(requests);
    const TimePoint begun_at = options_.clock->Now();
    status = Try([&] {
      return executor_.LookUp(
          version, PlansOf(requests),
          {.deadline = deadline, .cancel = &cancel_, .unwanted = &requests.head()->cancelled});
    });
    const bool interrupted = EndLookup(requests);
    const TimePoint now = options_.clock->Now();
    on_lookup(now - begun_at, status.ok() ? executor_.counts() : LookupCounts());
    if (status.ok()) requests = EndAnswered(version, requests, interrupted || now >= deadline);
  }
  while (PlannedRequest* request = requests.Pop()) request->Finish(status);
}

void BatchCore::Interrupt(const PlannedRequest& request) {
  MutexLock lock(mutex_);
  if (request.in_lookup) cancel_.Cancel();
}

void BatchCore::End() {
  MutexLock lock(mutex_);
  ended_.store(true, std::memory_order_relaxed);
  cancel_.Cancel();
}

// A thread that cancels a request marks it first and then takes the lock (Interrupt). So either
// that thread finds the request in the lookup, or this finds the mark.
void BatchCore::BeginLookup(const RequestList<>& requests) {
  MutexLock lock(mutex_);
  cancel_.Reset();
  bool is_in_vain = ended_.load(std::memory_order_relaxed);
  for (PlannedRequest* request = requests.head(); request != nullptr; request = request->next) {
    request->in_lookup = true;
    is_in_vain |= request->cancelled.load(std::memory_order_relaxed);
  }
  if (is_in_vain) cancel_.Cancel();
}

// Whether it was interrupted.
bool BatchCore::EndLookup(const RequestList<>& requests) {
  MutexLock lock(mutex_);
  for (PlannedRequest* request = requests.head(); request != nullptr; request = request->next)
    request->in_lookup = false;
  return cancel_.is_cancelled();
}

BatchExecutor::Plans BatchCore::PlansOf(const RequestList<>& requests) {
  plans_.clear();
  for (PlannedRequest* request = requests.head(); request != nullptr; request = request->next)
    plans_.push_back(&request->plan);
  return plans_;
}

// Ends the cancelled requests; returns the others.
RequestList<> BatchCore::EndCancelled(RequestList<> requests) {
  RequestList<> others;
  while (PlannedRequest* request = requests.Pop()) {
    if (request->cancelled.load(std::memory_order_relaxed)) {
      request->Finish(Cancelled());
    } else {
      others.Push(request);
    }
  }
  return others;
}

// Ends the requests whose rows have come or whose time is up; returns the others. Where the lookup
// was not ended early, a default row stands for a level that failed: waiting would not help.
RequestList<> BatchCore::EndAnswered(ModelVersion& version, RequestList<> requests,
                                     bool ended_early) {
  requests = EndCancelled(requests);
  const bool is_end = ended_.load(std::memory_order_relaxed);
  RequestList<> again;
  RequestList<> to_predict;
  while (PlannedRequest* request = requests.Pop()) {
    const bool is_late = ended_early && request->plan.degraded_count != 0;
    if (is_late && !is_end && request->lookup_deadline > options_.clock->Now()) {
      again.Push(request);
    } else if (is_late && EndLate(*request)) {
      continue;
    } else if (request->plan.is_prediction) {
      to_predict.Push(request);
    } else {
      request->plan.CopyJointOutputs();
      request->Finish(absl::OkStatus());
    }
  }
  Predict(version, to_predict);
  return again;
}

// Ends a request that lacks rows, if that is an error. False: it is to be answered as it is.
bool BatchCore::EndLate(PlannedRequest& request) const {
  // A request that was not to wait has got what there was.
  if (request.lookup_deadline == Deadline::min()) return false;
  request.is_late = true;
  if (options_.late_answers != LateAnswers::kError) return false;
  request.Finish(late_);
  return true;
}

void BatchCore::Predict(ModelVersion& version, RequestList<> requests) {
  if (requests.empty()) return;
  const absl::Status status = RunNetwork(version, requests);
  const bool is_one = requests.size() == 1;
  while (PlannedRequest* request = requests.Pop()) {
    absl::Status ended = status;
    if (!status.ok() && !is_one) {
      RequestList<> alone;
      alone.Push(request);
      ended = RunNetwork(version, alone);
    }
    if (ended.ok()) request->plan.CopyJointOutputs();
    request->Finish(ended);
  }
}

absl::Status BatchCore::RunNetwork(ModelVersion& version, const RequestList<>& requests) {
  return Try([&] { return executor_.Predict(version, PlansOf(requests)); });
}

}  // namespace hps
