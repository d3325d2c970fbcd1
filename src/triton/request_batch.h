// Answers the requests of one execute call of Triton, together (inference/batch_core.h); each gets
// its own response or its own error.
//
// One for each instance of a model; for the one thread that Triton has for it. Keeps the memory of
// earlier requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "inference/batch_core.h"
#include "inference/model_version.h"
#include "inference/planned_request.h"
#include "inference/tensor.h"
#include "triton/triton_api.h"
#include "triton/triton_model.h"

namespace hps::triton {

class RequestBatch {
 public:
  // `model` outlives it; `slot` is one of its slots.
  RequestBatch(TritonModel& model, size_t slot);

  size_t slot() const { return slot_; }

  // Answers and releases all requests. Reports the statistics of `instance`.
  void Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
               uint32_t count);

 private:
  // Memory for an output whose buffer Triton has not aligned for numbers.
  struct OwnOutput {
    std::vector<float> memory;
    void* to = nullptr;
    size_t byte_count = 0;
  };
  struct Call final : PlannedRequest {
    void Finish(const absl::Status& ended) override { status = ended; }

    TRITONBACKEND_Request* handle = nullptr;
    TRITONBACKEND_Response* response = nullptr;
    TensorRequest request{};
    std::vector<OutputTensor> outputs{};
    std::vector<std::vector<std::byte>> joined{};  // inputs that came in several buffers
    std::vector<OwnOutput> own_outputs{};
    uint64_t batch_size = 1;
    absl::Status status{};
  };

  absl::Status Prepare(Call& call, const ModelVersion& version, TimePoint now);
  absl::Status ReadInputs(Call& call) const;
  static absl::Status ReadInput(Call& call, uint32_t index);
  static absl::Status JoinBuffers(Call& call, TRITONBACKEND_Input* input, uint32_t buffer_count,
                                  InputTensor& tensor);
  absl::Status ReadDeadline(Call& call, TimePoint now) const;
  absl::Status Plan(Call& call, const ModelVersion& version) const;
  absl::Status PlanOutputs(Call& call, const ModelVersion& version) const;
  absl::Status MakeOutputs(Call& call, const ModelVersion& version) const;
  void AnswerAll(ModelVersion& version, RequestList<Call> calls);
  static void Send(Call& call);

  TritonModel& model_;
  const size_t slot_;
  BatchCore core_;
  std::vector<std::unique_ptr<Call>> calls_;  // kept; the first ones are in use
};

}  // namespace hps::triton
