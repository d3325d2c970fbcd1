#include "hps/prediction_model.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"
#include "base/server_threads.h"
#include "inference/batch_executor.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
#include "inference/request_plan.h"
#include "inference/tensor.h"
#include "inference/tensor_checks.h"

namespace hps {
namespace {

// As in the server: nobody may wait for longer.
constexpr Duration kTimeoutMax = std::chrono::hours(1);

absl::Status ReadInput(const ModelInput& input, InputTensor& tensor) {
  tensor.name = input.name;
  const std::optional<Datatype> datatype = ParseDatatype(input.datatype);
  if (!datatype.has_value())
    return Invalid(tensor, absl::StrCat("unknown datatype '", Text(input.datatype), "'"));
  tensor.datatype = *datatype;
  if (input.shape.size() > kTensorDimsMax)
    return Invalid(tensor,
                   absl::StrCat(input.shape.size(), " dimensions; at most ", kTensorDimsMax));
  if (std::any_of(input.shape.begin(), input.shape.end(), [](int64_t dim) { return dim < 0; }))
    return Invalid(tensor, "a negative dimension");
  tensor.shape.dim_count = input.shape.size();
  std::copy(input.shape.begin(), input.shape.end(), tensor.shape.dims.begin());
  tensor.bytes = input.bytes;
  return absl::OkStatus();
}

class StorePredictionModel final : public PredictionModel {
 public:
  StorePredictionModel(Store& store, std::string name, const Config& config)
      : store_(store),
        name_(std::move(name)),
        options_{.slot_count = LookupSlots(config.server),
                 .devices = store.models().devices(),
                 .keys_max = LookupKeysMax(config, store.models()),
                 .device_keys_max = config.l1.call_keys_max,
                 .networks_on_devices = config.server.dense_device == DenseDevice::kAuto,
                 .dense_math = config.server.dense_math},
        timeout_(config.lookup.timeout),
        late_answers_(config.server.late_answers),
        limits_{.response_bytes_max = config.server.response_bytes_max} {
    for (size_t slot = 0; slot < options_.slot_count; ++slot) free_slots_.push_back(slot);
    instances_.resize(options_.slot_count);
  }

  // Opens the model's version where it is not the one that is loaded now.
  absl::StatusOr<ModelVersionRef> Version() {
    MutexLock lock(version_mutex_);
    if (!version_ || !version_->is_current()) {
      version_.Release();
      HPS_ASSIGN_OR_RETURN(version_, ModelVersion::Open(store_.models(), name_, options_));
    }
    return version_.Share();
  }

  absl::StatusOr<std::vector<ModelOutput>> Predict(const PredictRequest& request) override {
    const Duration timeout = request.timeout.value_or(timeout_);
    const Deadline deadline =
        RealClock().Now() + std::clamp(timeout, Duration::zero(), kTimeoutMax);
    HPS_ASSIGN_OR_RETURN(const size_t slot, TakeSlot(deadline));
    absl::StatusOr<std::vector<ModelOutput>> outputs = std::vector<ModelOutput>();
    try {
      const bool may_wait = timeout > Duration::zero();
      const absl::Status status =
          PredictIn(slot, request, {.deadline = deadline, .may_wait = may_wait}, *outputs);
      if (!status.ok()) outputs = status;
    } catch (const std::bad_alloc&) {
      outputs = OutOfMemory("out of memory; try again later");
    }
    ReturnSlot(slot);
    return outputs;
  }

 private:
  // What a running call has to itself; kept for the next one.
  struct Instance {
    explicit Instance(const BatchExecutor::Options& options) : executor(options) {}

    BatchExecutor executor;
    TensorRequest request{};
    std::vector<OutputTensor> outputs{};
    ExecutionPlan plan{};
  };
  struct Wait {
    Deadline deadline;
    bool may_wait;
  };

  absl::StatusOr<size_t> TakeSlot(Deadline deadline) {
    MutexLock lock(slots_mutex_);
    while (free_slots_.empty()) {
      if (slot_returned_.WaitUntil(slots_mutex_, deadline) || !free_slots_.empty()) continue;
      return absl::DeadlineExceededError(absl::StrCat("model '", name_, "': all ",
                                                      options_.slot_count,
                                                      " instances were busy until the deadline"));
    }
    const size_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void ReturnSlot(size_t slot) {
    MutexLock lock(slots_mutex_);
    free_slots_.push_back(slot);  // has room
    slot_returned_.NotifyOne();
  }

  absl::Status PredictIn(size_t slot, const PredictRequest& request, const Wait& wait,
                         std::vector<ModelOutput>& outputs) {
    HPS_ASSIGN_OR_RETURN(const ModelVersionRef version, Version());
    if (instances_[slot] == nullptr) {
      instances_[slot] = std::make_unique<Instance>(BatchExecutor::Options{
          .slot = slot, .keys_max = options_.keys_max, .clock = &RealClock()});
    }
    Instance& instance = *instances_[slot];
    instance.request.inputs.clear();
    for (const ModelInput& input : request.inputs)
      HPS_RETURN_IF_ERROR(ReadInput(input, instance.request.inputs.emplace_back()));
    instance.request.output_names.assign(request.outputs.begin(), request.outputs.end());
    HPS_RETURN_IF_ERROR(
        PlanRequest(*version, limits_, instance.request, instance.outputs, instance.plan));
    outputs.reserve(instance.outputs.size());
    for (OutputTensor& planned : instance.outputs) {
      const std::span<const int64_t> dims = planned.shape.values();
      ModelOutput& output =
          outputs.emplace_back(ModelOutput{.name = std::string(planned.name),
                                           .datatype = std::string(DatatypeName(planned.datatype)),
                                           .shape = {dims.begin(), dims.end()},
                                           .bytes = std::vector<std::byte>(planned.byte_count)});
      planned.data = output.bytes.data();
    }
    return Execute(instance, *version, wait);
  }

  absl::Status Execute(Instance& instance, ModelVersion& version, const Wait& wait) const {
    ExecutionPlan* const plan = &instance.plan;
    HPS_RETURN_IF_ERROR(instance.executor.LookUp(version, {&plan, 1}, {.deadline = wait.deadline}));
    const bool is_late = plan->degraded_count != 0 && RealClock().Now() >= wait.deadline;
    if (is_late && wait.may_wait && late_answers_ == LateAnswers::kError)
      return absl::DeadlineExceededError("the rows had not all come by the deadline");
    if (plan->is_prediction) HPS_RETURN_IF_ERROR(instance.executor.Predict(version, {&plan, 1}));
    plan->CopyJointOutputs();
    return absl::OkStatus();
  }

  Store& store_;
  const std::string name_;
  const ModelVersion::Options options_;
  const Duration timeout_;
  const LateAnswers late_answers_;
  const PlanLimits limits_;
  Mutex version_mutex_;  // held while a version is opened
  ModelVersionRef version_ HPS_GUARDED_BY(version_mutex_);
  Mutex slots_mutex_;
  CondVar slot_returned_;
  std::vector<size_t> free_slots_ HPS_GUARDED_BY(slots_mutex_);
  std::vector<std::unique_ptr<Instance>> instances_;  // by slot; each is for who has the slot
};

}  // namespace

absl::StatusOr<std::unique_ptr<PredictionModel>> PredictionModel::Open(Store& store,
                                                                       const std::string& name,
                                                                       const Config& config) {
  auto model = std::make_unique<StorePredictionModel>(store, name, config);
  HPS_RETURN_IF_ERROR(model->Version().status());
  return model;
}

}  // namespace hps
