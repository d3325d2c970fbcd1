#include "server/core/inference_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "inference/request_plan.h"

namespace hps::server {
namespace {

// What a call takes besides its tensors.
constexpr uint64_t kCallBytes = 1024;
// How long a call may wait for a slot that is not to wait for rows.
constexpr Duration kNoWaitQueueMax = std::chrono::seconds(1);

}  // namespace

InferenceEngine::InferenceEngine(const Options& options, ModelDirectory& models,
                                 ServerCounters& counters)
    : options_(options),
      models_(models),
      counters_(counters),
      admission_(
          {.keys_max = options.server.keys_in_flight_max,
           .bytes_max = options.server.bytes_in_flight_max,
           .calls_max = kServerCallsMax,
           .connection_bytes = options.server.tls_certificate.empty() ? 0 : kTlsConnectionBytes}),
      queue_({.slot_count = options.slot_count,
              .turn_count = options.device_count,
              .keys_max = options.lookup_keys_max,
              .parts_max = kTablesPerCallMax,
              .wait_max = options.server.batch_wait,
              .clock = options.clock}) {
  for (size_t slot = 0; slot < options_.slot_count; ++slot) {
    cores_.push_back(
        std::make_unique<BatchCore>(BatchCore::Options{.slot = slot,
                                                       .keys_max = options_.lookup_keys_max,
                                                       .late_answers = options_.server.late_answers,
                                                       .clock = options_.clock}));
    slot_tasks_.push_back(std::make_unique<SlotTask>(*this));
  }
}

InferenceEngine::~InferenceEngine() { HPS_CHECK(admission_.calls_in_flight() == 0); }

absl::Status InferenceEngine::Prepare(InferenceCall& call) {
  CallState& prepared = CallState::Of(call);
  HPS_CHECK(prepared.model == nullptr);  // Reset comes between two requests
  if (refusing_.load(std::memory_order_relaxed)) {
    counters_.CountRefused(RefusedReason::kDraining);
    return shutting_down_;
  }
  ServerModel* const model = models_.Find(call.request.model);
  const absl::Status status = Try([&] {
    return model == nullptr ? models_.NoSuchModel(call.request.model)
                            : PrepareIn(call, prepared, *model);
  });
  if (status.ok()) {
    prepared.model = model;
    return status;
  }
  CountRefusal(status);
  call.outputs.clear();
  prepared.version.reset();
  prepared.reservation.reset();
  prepared.plan.Clear();
  return status;
}

absl::Status InferenceEngine::PrepareIn(InferenceCall& call, CallState& prepared,
                                        ServerModel& model) {
  prepared.clock = options_.clock;
  prepared.counters = &counters_;
  SetDeadlines(call.request, prepared);
  HPS_RETURN_IF_ERROR(CheckUnreadWait(call.request, prepared));
  HPS_ASSIGN_OR_RETURN(prepared.version, model.FindVersion(call.request.version));
  HPS_RETURN_IF_ERROR(PlanRequest(*prepared.version,
                                  {.response_bytes_max = options_.server.response_bytes_max},
                                  call.request, call.outputs, prepared.plan));
  HPS_RETURN_IF_ERROR(CheckWait(prepared, model));
  uint64_t bytes = 0;
  for (const InputTensor& input : call.request.inputs) bytes += input.bytes.size();
  bytes = kCallBytes + std::max(bytes, call.request.body_bytes) + call.AnswerBytes() +
          prepared.plan.network_bytes;
  HPS_RETURN_IF_ERROR(admission_.Reserve(prepared.plan.key_count, bytes, &prepared.reservation));
  prepared.version_text = prepared.version->number_text();
  call.model_version = prepared.version_text;
  return absl::OkStatus();
}

Duration InferenceEngine::TimeFor(Duration timeout) const {
  const Duration wanted = timeout > Duration::zero() ? timeout : options_.lookup_timeout;
  return wanted > Duration::zero() ? std::min<Duration>(wanted, kRequestTimeMax) : kNoWaitQueueMax;
}

void InferenceEngine::SetDeadlines(const InferenceRequest& request, CallState& prepared) const {
  const TimePoint now = options_.clock->Now();
  prepared.arrival = request.arrival == TimePoint() ? now : request.arrival;
  prepared.deadline = prepared.arrival + TimeFor(request.timeout);
  prepared.lookup_deadline = LookupDeadline(prepared.arrival, request.timeout > Duration::zero()
                                                                  ? request.timeout
                                                                  : options_.lookup_timeout);
}

// A call that has waited unread for more than half of its time is hopeless, or takes the place of a
// call that is not. It is refused before anything else is checked.
absl::Status InferenceEngine::CheckUnreadWait(const InferenceRequest& request,
                                              const CallState& prepared) const {
  const Duration timeout = prepared.deadline - prepared.arrival;
  if (request.socket_wait <= timeout / 2) return absl::OkStatus();
  if (request.socket_wait >= timeout) return late_in_queue_;
  return waited_unread_;
}

// If the model's oldest call has waited for more than half of this call's time, this call would
// wait as long, and later calls longer: all of them would be answered too late. So this call is
// refused, which keeps the queue as short as the calls' time-outs demand.
absl::Status InferenceEngine::CheckWait(const CallState& prepared, const ServerModel& model) const {
  const int64_t head_since_ns = model.queue.head_since_ns.load(std::memory_order_relaxed);
  if (head_since_ns == 0) return absl::OkStatus();
  const Duration waited =
      options_.clock->Now().time_since_epoch() - std::chrono::nanoseconds(head_since_ns);
  if (waited <= (prepared.deadline - prepared.arrival) / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "the server is at its capacity (waiting calls); try again later");
}

void InferenceEngine::CountRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return counters_.CountRefused(RefusedReason::kCapacity);
    case absl::StatusCode::kDeadlineExceeded:
      return counters_.CountDeadlineExceeded(LateStage::kQueue);
    case absl::StatusCode::kUnavailable:
      return counters_.CountRefused(RefusedReason::kNotReady);
    case absl::StatusCode::kOutOfRange:
      return counters_.CountBadRequest(BadRequestReason::kLimit);
    case absl::StatusCode::kNotFound:
      return counters_.CountBadRequest(BadRequestReason::kUnknown);
    default:
      return counters_.CountBadRequest(BadRequestReason::kContent);
  }
}

void InferenceEngine::Run(InferenceCall& call) {
  CallState& prepared = CallState::Of(call);
  HPS_CHECK(prepared.model != nullptr);
  prepared.run_at = options_.clock->Now();
  Do(queue_.Enter(prepared, prepared.model->queue));
}

void InferenceEngine::Cancel(InferenceCall& call) {
  CallState& prepared = CallState::Of(call);
  prepared.cancelled.store(true, std::memory_order_relaxed);
  const BatchQueue::Place place = queue_.Remove(prepared, prepared.model->queue);
  if (place.waited) {
    prepared.Finish(BatchCore::Cancelled());
  } else if (place.slot != BatchQueue::kNoSlot) {
    cores_[place.slot]->Interrupt(prepared);
  }
}

void InferenceEngine::EndCalls() {
  RefuseCalls();
  for (const auto& core : cores_) core->End();
  EndOverdue(queue_.EndWaiting().overdue);
}

void InferenceEngine::EndDue(Executor* executor) {
  BatchQueue::Work work = queue_.TakeDue();
  if (executor == nullptr || work.slot == BatchQueue::kNoSlot) return Do(work);
  EndOverdue(std::exchange(work.overdue, CallList()));
  // The slot is taken, so its task is not queued.
  SlotTask& task = *slot_tasks_[work.slot];
  task.work = work;
  HPS_CHECK(executor->Post(&task).ok());
}

void InferenceEngine::Do(BatchQueue::Work work) {
  for (;;) {
    EndOverdue(work.overdue);
    if (work.slot == BatchQueue::kNoSlot) return;
    RunBatch(work.slot, work.calls);
    work = queue_.ReleaseSlot(work.slot);
  }
}

void InferenceEngine::RunBatch(size_t slot, CallList calls) {
  const ModelVersionRef version = calls.head()->version->Share();
  ModelCounters& counters = calls.head()->model->counters;
  const size_t call_count = calls.size();
  counters.CountBatch(call_count);
  RequestList<> requests;
  while (CallState* call = calls.Pop()) requests.Push(call);
  cores_[slot]->Run(*version, requests, [&](Duration time, const LookupCounts&) {
    counters.AddBatchTime(call_count, time);
  });
}

void InferenceEngine::EndOverdue(CallList calls) {
  while (CallState* call = calls.Pop()) {
    if (call->cancelled.load(std::memory_order_relaxed)) {
      call->Finish(BatchCore::Cancelled());
      continue;
    }
    counters_.CountDeadlineExceeded(LateStage::kQueue);
    call->Finish(late_in_queue_);
  }
}

}  // namespace hps::server
