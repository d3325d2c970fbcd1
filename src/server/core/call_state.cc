#include "server/core/call_state.h"

#include "server/core/server_model.h"

namespace hps::server {

InferenceCall::InferenceCall() : prepared_(std::make_unique<CallState>(*this)) {}

InferenceCall::~InferenceCall() { prepared_->Reset(); }

uint64_t InferenceCall::TensorBytes() const {
  uint64_t bytes = 0;
  for (const OutputTensor& output : outputs) bytes += output.byte_count;
  return bytes;
}

void InferenceCall::Reset() {
  prepared_->Reset();
  request.protocol = Protocol::kHttp;
  request.arrival = TimePoint();
  request.socket_wait = Duration();
  request.model = request.version = request.id = std::string_view();
  request.timeout = Duration();
  request.body_bytes = 0;
  ClearTensorList(&request.inputs);
  ClearTensorList(&request.output_names);
  model_version = std::string_view();
  ClearTensorList(&outputs);
}

void CallState::Reset() {
  if (model == nullptr) return;
  if (answered) {
    const TimePoint now = clock->Now();
    model->counters.CountStage(Stage::kDecode, run_at - arrival);
    model->counters.CountStage(Stage::kEncode, now - done_at);
    model->counters.CountStage(Stage::kTotal, now - arrival);
  }
  answered = is_late = false;
  cancelled.store(false, std::memory_order_relaxed);
  slot = kNoSlot;
  version.reset();
  reservation.reset();
  plan.Clear();
  model = nullptr;
}

void CallState::Finish(const absl::Status& status) {
  done_at = clock->Now();
  answered = status.ok();
  if (is_late) counters->CountDeadlineExceeded(LateStage::kLookup);
  if (answered) {
    model->counters.CountStage(Stage::kQueue, started_at - run_at);
    model->counters.CountStage(Stage::kLookup, done_at - started_at);
  }
  model->counters.CountCall(status.ok(), plan.key_count, done_at - arrival);
  version.reset();  // the rows are there: a slow client holds no tables
  call->OnDone(status);
}

}  // namespace hps::server
