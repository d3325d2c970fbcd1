#include "server/core/batch_runner.h"

#include <algorithm>
#include <new>

#include "base/out_of_memory.h"
#include "server/core/server_model.h"

namespace hps::server {
namespace {

Deadline EarliestDeadline(const CallState* first) {
  Deadline earliest = kNoDeadline;
  for (const CallState* call = first; call != nullptr; call = call->next)
    earliest = std::min(earliest, call->lookup_deadline);
  return earliest;
}

}  // namespace

BatchRunner::BatchRunner(const Options& options)
    : options_(options),
      executor_({.slot = options.slot, .keys_max = options.keys_max, .clock = options.clock}) {}

void BatchRunner::Run(CallList calls) {
  const ModelVersionRef version = calls.head()->version.Share();
  ModelCounters& counters = calls.head()->model->counters;
  const size_t call_count = calls.size();
  counters.CountBatch(call_count);
  absl::Status status;
  calls = EndCancelled(calls);
  while (status.ok() && !calls.empty()) {
    const Deadline deadline = EarliestDeadline(calls.head());
    BeginLookUp(calls.head());
    const TimePoint begun_at = options_.clock->Now();
    status = LookUp(*version, calls.head(), deadline);
    const bool interrupted = EndLookUp(calls.head());
    const TimePoint now = options_.clock->Now();
    counters.AddBatchTime(call_count, now - begun_at);
    if (status.ok()) calls = EndAnswered(*version, calls, interrupted || now >= deadline);
  }
  while (CallState* call = calls.Pop()) call->Finish(status);
}

void BatchRunner::Interrupt(const CallState& call) {
  MutexLock lock(mutex_);
  if (call.in_lookup) cancel_.Cancel();
}

void BatchRunner::End() {
  MutexLock lock(mutex_);
  ended_.store(true, std::memory_order_relaxed);
  cancel_.Cancel();
}

// A thread that cancels a call marks the call first and then takes the lock (Interrupt). So either
// that thread finds the call in the lookup, or this finds the mark.
void BatchRunner::BeginLookUp(CallState* first) {
  MutexLock lock(mutex_);
  cancel_.Reset();
  bool is_in_vain = ended_.load(std::memory_order_relaxed);
  for (CallState* call = first; call != nullptr; call = call->next) {
    call->in_lookup = true;
    is_in_vain |= call->cancelled.load(std::memory_order_relaxed);
  }
  if (is_in_vain) cancel_.Cancel();
}

// Whether it was interrupted.
bool BatchRunner::EndLookUp(CallState* first) {
  MutexLock lock(mutex_);
  for (CallState* call = first; call != nullptr; call = call->next) call->in_lookup = false;
  return cancel_.is_cancelled();
}

// Looks up the keys of the calls, in as many lookups as they take.
absl::Status BatchRunner::LookUp(ModelVersion& version, CallState* first, Deadline deadline) {
  try {
    return executor_.LookUp(
        version, PlansOf(first),
        {.deadline = deadline, .cancel = &cancel_, .unwanted = &first->cancelled});
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory; try again later");
  }
}

BatchExecutor::Plans BatchRunner::PlansOf(CallState* first) {
  plans_.clear();
  for (CallState* call = first; call != nullptr; call = call->next) plans_.push_back(&call->plan);
  return plans_;
}

// Ends the calls whose rows have come or whose time is up; returns the others. Where the lookup
// was not ended early, a default row stands for a level that failed: waiting would not help.
CallList BatchRunner::EndAnswered(ModelVersion& version, CallList calls, bool ended_early) {
  calls = EndCancelled(calls);
  const bool is_end = ended_.load(std::memory_order_relaxed);
  CallList again;
  CallList to_predict;
  while (CallState* call = calls.Pop()) {
    const bool is_late = ended_early && call->plan.degraded_count != 0;
    if (is_late && !is_end && call->lookup_deadline > options_.clock->Now()) {
      again.Push(call);
    } else if (is_late && EndLate(call)) {
      continue;
    } else if (call->plan.is_prediction) {
      to_predict.Push(call);
    } else {
      call->plan.CopyJointOutputs();
      call->Finish(absl::OkStatus());
    }
  }
  Predict(version, to_predict);
  return again;
}

// Runs the network for all calls together and ends them. If that fails, runs it for each call
// alone, so that a call that fails does not fail the others.
void BatchRunner::Predict(ModelVersion& version, CallList calls) {
  if (calls.empty()) return;
  const absl::Status status = RunNetwork(version, calls);
  const bool is_one = calls.size() == 1;
  while (CallState* call = calls.Pop()) {
    absl::Status ended = status;
    if (!status.ok() && !is_one) {
      CallList alone;
      alone.Push(call);
      ended = RunNetwork(version, alone);
    }
    if (ended.ok()) call->plan.CopyJointOutputs();
    call->Finish(ended);
  }
}

absl::Status BatchRunner::RunNetwork(ModelVersion& version, const CallList& calls) {
  try {
    return executor_.Predict(version, PlansOf(calls.head()));
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory; try again later");
  }
}

// Ends the calls that nobody wants any more; returns the others.
CallList BatchRunner::EndCancelled(CallList calls) {
  CallList others;
  while (CallState* call = calls.Pop()) {
    if (call->cancelled.load(std::memory_order_relaxed)) {
      call->Finish(TerminalStatuses::Get().cancelled);
    } else {
      others.Push(call);
    }
  }
  return others;
}

// Ends a call that lacks rows, if that is an error. False: the call is to be answered as it is.
bool BatchRunner::EndLate(CallState* call) {
  // A call that was not to wait has got what there was.
  if (call->lookup_deadline == Deadline::min()) return false;
  options_.counters->CountDeadlineExceeded(LateStage::kLookup);
  if (options_.late_answers != LateAnswers::kError) return false;
  call->Finish(TerminalStatuses::Get().late_in_lookup);
  return true;
}

}  // namespace hps::server
