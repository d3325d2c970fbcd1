// Answers the requests of one execute call of Triton: one lookup for all of them, and one run of
// the network; each request gets its own response or its own error.
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
#include "inference/batch_executor.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
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
  struct Call {
    TRITONBACKEND_Request* handle = nullptr;
    TRITONBACKEND_Response* response = nullptr;
    TensorRequest request{};
    std::vector<OutputTensor> outputs{};
    ExecutionPlan plan{};
    std::vector<std::vector<std::byte>> joined{};  // inputs that came in several buffers
    std::vector<OwnOutput> own_outputs{};
    Deadline deadline = kNoDeadline;
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
  void AnswerAll(ModelVersion& version);
  void Answer(ModelVersion& version);
  absl::Status LookUp(ModelVersion& version);
  void EndRound(ModelVersion& version, bool is_over);
  bool IsLate(Call& call) const;
  void Predict(ModelVersion& version);
  absl::Status RunNetwork(ModelVersion& version, const std::vector<Call*>& calls);
  static void Send(Call& call);

  TritonModel& model_;
  const size_t slot_;
  BatchExecutor executor_;
  std::vector<std::unique_ptr<Call>> calls_;  // kept; the first ones are in use
  std::vector<Call*> ready_;                  // with a plan and memory for its outputs
  std::vector<Call*> waiting_;                // of these: in work, and not all rows have come
  std::vector<Call*> again_;
  std::vector<Call*> to_predict_;
  std::vector<ExecutionPlan*> plans_;
};

}  // namespace hps::triton
