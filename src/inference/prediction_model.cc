#include "hps/prediction_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"
#include "base/public_message.h"
#include "base/server_threads.h"
#include "inference/batch_core.h"
#include "inference/model_version.h"
#include "inference/planned_request.h"
#include "inference/request_plan.h"
#include "inference/tensor.h"
#include "inference/tensor_checks.h"

namespace hps {
namespace {

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
      : models_(store.models()),
        name_(std::move(name)),
        options_(ModelVersion::OptionsFor(config, models_, LookupSlots(config.server))),
        timeout_(config.lookup.timeout),
        limits_{.response_bytes_max = config.server.response_bytes_max} {
    for (size_t slot = 0; slot < options_.slot_count; ++slot) {
      instances_.push_back(
          std::make_unique<Instance>(BatchCore::Options{.slot = slot,
                                                        .keys_max = options_.keys_max,
                                                        .late_answers = config.server.late_answers,
                                                        .clock = &RealClock()}));
    }
    for (size_t slot = options_.slot_count; slot > 0; --slot) free_slots_.push_back(slot - 1);
  }

  // Errors: those of PredictionModel::Open.
  absl::Status Start() {
    switches_ = models_.Follow(name_, [this] { return OnSwitch(); });
    HPS_RETURN_IF_ERROR(OnSwitch());
    return Version().status();
  }

  absl::StatusOr<std::vector<ModelOutput>> Predict(const PredictRequest& request) override {
    const Duration timeout = request.timeout.value_or(timeout_);
    const TimePoint now = RealClock().Now();
    const Deadline deadline = LookupDeadline(now, timeout);
    HPS_ASSIGN_OR_RETURN(const size_t slot, TakeSlot(std::max(deadline, now)));
    Instance& instance = *instances_[slot];
    instance.lookup_deadline = deadline;
    std::vector<ModelOutput> outputs;
    const absl::Status status = Try([&] { return PredictIn(instance, request, outputs); });
    ReturnSlot(slot);
    if (!status.ok()) return status;
    return outputs;
  }

 private:
  // What a running call has to itself; kept for the next one.
  struct Instance final : PlannedRequest {
    explicit Instance(const BatchCore::Options& options) : core(options) {}
    void Finish(const absl::Status& ended) override { status = ended; }

    BatchCore core;
    TensorRequest request{};
    std::vector<OutputTensor> planned{};
    absl::Status status{};
  };

  // Answers from the model's newest version from now on. If that can't be made ready, the former
  // one goes on; if the model is not loaded any more, there is none.
  absl::Status OnSwitch() {
    MutexLock opening(opening_mutex_);
    const absl::StatusOr<ModelVersionRef> former = Version();
    if (former.ok() && (*former)->is_current()) return absl::OkStatus();
    absl::StatusOr<ModelVersionRef> opened = ModelVersion::Open(models_, name_, options_);
    if (opened.ok()) {
      Publish(std::move(opened));
      return absl::OkStatus();
    }
    if (absl::Status gone = models_.Open(name_).status(); !gone.ok()) {
      Publish(std::move(gone));
      return absl::OkStatus();
    }
    if (!former.ok()) {
      Publish(opened.status());
      return opened.status();
    }
    const absl::Status behind = BehindTheSwitch(opened.status());
    LogWarning(absl::StrCat("a version can't be used: ", TextForLog(behind)));
    return behind;
  }

  void Publish(absl::StatusOr<ModelVersionRef> version) {
    MutexLock lock(version_mutex_);
    std::swap(version_, version);  // the former one ends outside the lock
  }

  absl::StatusOr<ModelVersionRef> Version() {
    MutexLock lock(version_mutex_);
    if (!version_.ok()) return version_.status();
    return (*version_)->Share();
  }

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

  absl::Status PredictIn(Instance& instance, const PredictRequest& request,
                         std::vector<ModelOutput>& outputs) {
    HPS_ASSIGN_OR_RETURN(const ModelVersionRef version, Version());
    instance.request.inputs.clear();
    for (const ModelInput& input : request.inputs)
      HPS_RETURN_IF_ERROR(ReadInput(input, instance.request.inputs.emplace_back()));
    instance.request.output_names.assign(request.outputs.begin(), request.outputs.end());
    HPS_RETURN_IF_ERROR(
        PlanRequest(*version, limits_, instance.request, instance.planned, instance.plan));
    outputs.reserve(instance.planned.size());
    for (OutputTensor& planned : instance.planned) {
      const std::span<const int64_t> dims = planned.shape.values();
      ModelOutput& output =
          outputs.emplace_back(ModelOutput{.name = std::string(planned.name),
                                           .datatype = std::string(DatatypeName(planned.datatype)),
                                           .shape = {dims.begin(), dims.end()},
                                           .bytes = std::vector<std::byte>(planned.byte_count)});
      planned.data = output.bytes.data();
    }
    RequestList<> requests;
    requests.Push(&instance);
    instance.core.Run(*version, requests, [](Duration, const LookupCounts&) {});
    return instance.status;
  }

  ModelManager& models_;
  const std::string name_;
  const ModelVersion::Options options_;
  const Duration timeout_;
  const PlanLimits limits_;
  Mutex opening_mutex_;  // one version at a time; taken before version_mutex_
  Mutex version_mutex_;
  // Or why there is none.
  absl::StatusOr<ModelVersionRef> version_ HPS_GUARDED_BY(version_mutex_);
  Mutex slots_mutex_;
  CondVar slot_returned_;
  std::vector<size_t> free_slots_ HPS_GUARDED_BY(slots_mutex_);
  std::vector<std::unique_ptr<Instance>> instances_;  // by slot; each is for who has the slot
  std::shared_ptr<void> switches_;                    // ends first
};

}  // namespace

absl::StatusOr<std::unique_ptr<PredictionModel>> PredictionModel::Open(Store& store,
                                                                       const std::string& name,
                                                                       const Config& config) {
  auto model = std::make_unique<StorePredictionModel>(store, name, config);
  HPS_RETURN_IF_ERROR(model->Start());
  return model;
}

}  // namespace hps
