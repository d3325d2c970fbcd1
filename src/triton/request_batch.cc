#include "triton/request_batch.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "inference/request_plan.h"
#include "triton/triton_status.h"

namespace hps::triton {
namespace {

uint64_t Nanoseconds(TimePoint time) {
  return static_cast<uint64_t>(Duration(time.time_since_epoch()).count());
}

absl::Status Invalid(std::string_view input, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("input '", absl::string_view(input.data(), input.size()), "': ", what));
}

}  // namespace

RequestBatch::RequestBatch(TritonModel& model, size_t slot)
    : model_(model),
      slot_(slot),
      core_({.slot = slot,
             .keys_max = model.store()->lookup_keys_max(),
             .late_answers = model.store()->config().server.late_answers,
             .clock = &RealClock()}) {}

void RequestBatch::Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                           uint32_t count) {
  const TimePoint begun_at = RealClock().Now();
  const ModelVersionRef version = model_.served().version();
  const std::span<TRITONBACKEND_Request*> handles(requests, count);
  while (calls_.size() < count) calls_.push_back(std::make_unique<Call>());
  RequestList<Call> ready;  // with a plan and memory for its outputs
  for (size_t i = 0; i < count; ++i) {
    Call& call = *calls_[i];
    call.handle = handles[i];
    call.status = Try([&] { return Prepare(call, *version, begun_at); });
    if (call.status.ok()) ready.Push(&call);
  }
  const TimePoint read_at = RealClock().Now();
  AnswerAll(*version, ready);
  const TimePoint computed_at = RealClock().Now();
  uint64_t batch_size = 0;
  for (size_t i = 0; i < count; ++i) {
    Call& call = *calls_[i];
    const bool ok = call.status.ok();
    batch_size += call.batch_size;
    Send(call);
    FromTriton(TRITONBACKEND_ModelInstanceReportStatistics(
                   instance, call.handle, ok, Nanoseconds(begun_at), Nanoseconds(read_at),
                   Nanoseconds(computed_at), Nanoseconds(RealClock().Now())))
        .IgnoreError();
    FromTriton(TRITONBACKEND_RequestRelease(call.handle, kReleaseAll)).IgnoreError();
  }
  FromTriton(TRITONBACKEND_ModelInstanceReportBatchStatistics(
                 instance, batch_size, Nanoseconds(begun_at), Nanoseconds(read_at),
                 Nanoseconds(computed_at), Nanoseconds(RealClock().Now())))
      .IgnoreError();
}

// ---- From Triton's request to a plan with memory for its outputs ----

absl::Status RequestBatch::Prepare(Call& call, const ModelVersion& version, TimePoint now) {
  call.response = nullptr;
  call.batch_size = 1;
  ClearTensorList(&call.request.inputs);
  ClearTensorList(&call.request.output_names);
  call.joined.clear();
  call.own_outputs.clear();
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseNew(&call.response, call.handle)));
  bool is_cancelled = false;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestIsCancelled(call.handle, &is_cancelled)));
  if (is_cancelled) return absl::CancelledError("the client gave the request up");
  HPS_RETURN_IF_ERROR(ReadInputs(call));
  HPS_RETURN_IF_ERROR(ReadDeadline(call, now));
  HPS_RETURN_IF_ERROR(Plan(call, version));
  return MakeOutputs(call, version);
}

absl::Status RequestBatch::ReadInputs(Call& call) const {
  uint32_t input_count = 0;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestInputCount(call.handle, &input_count)));
  for (uint32_t i = 0; i < input_count; ++i) HPS_RETURN_IF_ERROR(ReadInput(call, i));
  const bool has_batch = model_.settings().is_batched && !call.request.inputs.empty() &&
                         call.request.inputs.front().shape.dim_count > 0;
  if (has_batch) {
    const int64_t batch = call.request.inputs.front().shape.dims[0];
    call.batch_size = static_cast<uint64_t>(std::max<int64_t>(batch, 1));
  }
  return absl::OkStatus();
}

absl::Status RequestBatch::ReadInput(Call& call, uint32_t index) {
  TRITONBACKEND_Input* input = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestInputByIndex(call.handle, index, &input)));
  const char* name = nullptr;
  int datatype = 0;
  const int64_t* shape = nullptr;
  uint32_t dim_count = 0;
  uint64_t byte_size = 0;
  uint32_t buffer_count = 0;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_InputProperties(
      input, &name, &datatype, &shape, &dim_count, &byte_size, &buffer_count)));
  InputTensor& tensor = call.request.inputs.emplace_back();
  tensor.name = name;
  HPS_ASSIGN_OR_RETURN(tensor.datatype, DatatypeFromTriton(datatype));
  if (dim_count > kTensorDimsMax)
    return Invalid(name, absl::StrCat(dim_count, " dimensions; at most ", kTensorDimsMax));
  tensor.shape.dim_count = dim_count;
  std::copy_n(shape, dim_count, tensor.shape.dims.begin());
  return JoinBuffers(call, input, buffer_count, tensor);
}

absl::Status RequestBatch::JoinBuffers(Call& call, TRITONBACKEND_Input* input,
                                       uint32_t buffer_count, InputTensor& tensor) {
  std::vector<std::byte> joined;
  for (uint32_t i = 0; i < buffer_count; ++i) {
    const void* buffer = nullptr;
    uint64_t byte_size = 0;
    int memory_type = 0;
    int64_t memory_type_id = 0;
    HPS_RETURN_IF_ERROR(FromTriton(
        TRITONBACKEND_InputBuffer(input, i, &buffer, &byte_size, &memory_type, &memory_type_id)));
    if (memory_type == kMemoryGpu) {
      return absl::UnimplementedError(
          absl::StrCat("input '", absl::string_view(tensor.name.data(), tensor.name.size()),
                       "' is in a GPU's memory; it can be in the host's only"));
    }
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(buffer),
                                           buffer == nullptr ? 0 : byte_size);
    if (buffer_count == 1) {
      tensor.bytes = bytes;
      return absl::OkStatus();
    }
    joined.insert(joined.end(), bytes.begin(), bytes.end());
  }
  tensor.bytes = call.joined.emplace_back(std::move(joined));
  return absl::OkStatus();
}

// The client's time-out counts from here: Triton does not say when the request came.
absl::Status RequestBatch::ReadDeadline(Call& call, TimePoint now) const {
  uint64_t timeout_us = 0;
  HPS_RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(call.handle, &timeout_us)));
  constexpr auto kMaxUs = std::chrono::duration_cast<std::chrono::microseconds>(kRequestTimeMax);
  const std::chrono::microseconds named(
      std::min(timeout_us, static_cast<uint64_t>(kMaxUs.count())));
  call.lookup_deadline = LookupDeadline(
      now, timeout_us > 0 ? Duration(named) : model_.store()->config().lookup.timeout);
  return absl::OkStatus();
}

absl::Status RequestBatch::Plan(Call& call, const ModelVersion& version) const {
  const ServerConfig& server = model_.store()->config().server;
  HPS_RETURN_IF_ERROR(PlanOutputs(call, version));
  if (call.plan.network_bytes <= server.bytes_in_flight_max) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the rows and inputs of the network take ", call.plan.network_bytes,
                   " bytes; [server] bytes_in_flight_max is ", server.bytes_in_flight_max));
}

// For a client that names no output, Triton names every declared one. So the outputs are taken as
// named if the request has the inputs for all of them; otherwise those are answered that belong to
// its inputs. Many outputs that hps itself declares have the same content, and a client hardly ever
// wants them all.
absl::Status RequestBatch::PlanOutputs(Call& call, const ModelVersion& version) const {
  const PlanLimits limits = {.response_bytes_max =
                                 model_.store()->config().server.response_bytes_max};
  const auto plan = [&] {
    return PlanRequest(version, limits, call.request, call.outputs, call.plan);
  };
  uint32_t output_count = 0;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestOutputCount(call.handle, &output_count)));
  const std::vector<DeclaredTensor>& declared = model_.settings().outputs;
  const bool are_all = output_count == declared.size();
  if (are_all && model_.settings().outputs_overlap) return plan();
  for (uint32_t i = 0; i < output_count; ++i) {
    const char* name = nullptr;
    HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestOutputName(call.handle, i, &name)));
    call.request.output_names.emplace_back(name);
  }
  absl::Status planned = plan();
  if (planned.ok() || !are_all) return planned;
  call.request.output_names.clear();
  if (!plan().ok()) return planned;
  for (const OutputTensor& output : call.outputs) {
    const bool is_declared =
        std::any_of(declared.begin(), declared.end(),
                    [&](const DeclaredTensor& tensor) { return tensor.name == output.name; });
    if (!is_declared) return planned;
  }
  return absl::OkStatus();
}

absl::Status RequestBatch::MakeOutputs(Call& call, const ModelVersion& version) const {
  // A table of this name has its outputs as any other.
  const bool is_table = version.IndexOfTable(kRowsOutput).has_value();
  call.own_outputs.reserve(call.outputs.size());
  for (OutputTensor& output : call.outputs) {
    Shape shape = output.shape;
    const bool is_joint = !is_table && shape.dim_count == 1 &&
                          (output.name == kRowsOutput || output.name == kStatusOutput);
    if (is_joint && model_.settings().is_batched) {  // [n] as a batch of one
      shape.dims[1] = shape.dims[0];
      shape.dims[0] = 1;
      shape.dim_count = 2;
    }
    const std::string name(output.name);
    TRITONBACKEND_Output* made = nullptr;
    HPS_RETURN_IF_ERROR(FromTriton(
        TRITONBACKEND_ResponseOutput(call.response, &made, name.c_str(), ToTriton(output.datatype),
                                     shape.dims.data(), static_cast<uint32_t>(shape.dim_count))));
    void* buffer = nullptr;
    int memory_type = 0;  // wanted: the host's
    int64_t memory_type_id = 0;
    HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_OutputBuffer(made, &buffer, output.byte_count,
                                                              &memory_type, &memory_type_id)));
    if (memory_type == kMemoryGpu) {
      return absl::UnimplementedError(absl::StrCat(
          "output '", name, "' is wanted in a GPU's memory; it can be in the host's only"));
    }
    output.data = static_cast<std::byte*>(buffer);
    if (buffer != nullptr && AsAligned<float>(output.data) != nullptr) continue;
    OwnOutput& own = call.own_outputs.emplace_back();
    own.memory.resize(output.byte_count / sizeof(float) + 1);
    own.to = buffer;
    own.byte_count = buffer == nullptr ? 0 : output.byte_count;
    output.data = std::as_writable_bytes(std::span(own.memory)).data();
  }
  return absl::OkStatus();
}

// ---- The answers ----

// Calls whose network takes much memory are answered in turn.
void RequestBatch::AnswerAll(ModelVersion& version, RequestList<Call> calls) {
  const uint64_t bytes_max = model_.store()->config().server.bytes_in_flight_max;
  while (!calls.empty()) {
    RequestList<> batch;
    uint64_t bytes = 0;
    do {
      bytes += calls.head()->plan.network_bytes;
      batch.Push(calls.Pop());
    } while (!calls.empty() && calls.head()->plan.network_bytes <= bytes_max - bytes);
    core_.Run(version, batch,
              [this](Duration, const LookupCounts& counts) { model_.metrics().Count(counts); });
  }
}

void RequestBatch::Send(Call& call) {
  for (const OwnOutput& own : call.own_outputs) {
    if (call.status.ok() && own.byte_count > 0)
      std::memcpy(own.to, own.memory.data(), own.byte_count);
  }
  if (call.response == nullptr) {
    LogError(absl::StrCat("a request got no response: ", call.status.message()));
    return;
  }
  TRITONSERVER_Error* const error = ToTriton(call.status);
  const absl::Status sent =
      FromTriton(TRITONBACKEND_ResponseSend(call.response, kResponseFinal, error));
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
  if (!sent.ok()) LogError(absl::StrCat("a response was not sent: ", sent.message()));
}

}  // namespace hps::triton
