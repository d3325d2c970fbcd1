// The entry points that Triton calls (libtriton_hps.so). docs/triton.md says how it is used.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "inference/network_check.h"
#include "triton/key_metrics.h"
#include "triton/request_batch.h"
#include "triton/triton_api.h"
#include "triton/triton_model.h"
#include "triton/triton_status.h"

namespace hps::triton {
namespace {

// Instances of a model that names none; as many as Triton gives other backends on a CPU.
constexpr uint64_t kInstancesDefault = 2;

// No exception leaves an entry point.
template <typename Step>
TRITONSERVER_Error* Enter(Step step) {
  return ToTriton(Try(step));
}

absl::Status CheckApiVersion() {
  uint32_t major = 0;
  uint32_t minor = 0;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ApiVersion(&major, &minor)));
  if (major == kApiMajor && minor >= kApiMinorMin) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "hps: the server's backend API is ", major, ".", minor, "; this library needs ", kApiMajor,
      ".", kApiMinorMin, " (Triton 2.51) or a later one of ", kApiMajor, ".x"));
}

// The program that tries networks lies beside the library; without it they are not tried.
absl::Status FindNetworkCheck(TRITONBACKEND_Backend* backend) {
  int type = 0;
  const char* folder = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_BackendArtifacts(backend, &type, &folder)));
  static std::string* const program = new std::string;  // lives as long as the process
  *program = (std::filesystem::path(folder) / "hps_check_network").string();
  std::error_code unknown;
  if (std::filesystem::exists(*program, unknown)) SetNetworkCheckProgram(program->c_str());
  return absl::OkStatus();
}

absl::StatusOr<TritonModel*> ModelOf(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceModel(instance, &model)));
  void* state = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelState(model, &state)));
  return static_cast<TritonModel*>(state);
}

absl::Status InitializeInstance(TRITONBACKEND_ModelInstance* instance) {
  const char* name = nullptr;
  int kind = 0;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceName(instance, &name)));
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceKind(instance, &kind)));
  HPS_ASSIGN_OR_RETURN(TritonModel * model, ModelOf(instance));
  if (kind == kKindGpu) {
    const absl::Status refused = NoGpuInstances();
    return absl::Status(refused.code(), absl::StrCat("hps: model '", model->name(), "', instance '",
                                                     name, "': ", refused.message()));
  }
  HPS_ASSIGN_OR_RETURN(const size_t slot, model->store()->TakeSlot(model->served()));
  auto batch = std::make_unique<RequestBatch>(*model, slot);
  return FromTriton(TRITONBACKEND_ModelInstanceSetState(instance, batch.release()));
}

absl::Status FinalizeInstance(TRITONBACKEND_ModelInstance* instance) {
  void* state = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceState(instance, &state)));
  const std::unique_ptr<RequestBatch> batch(static_cast<RequestBatch*>(state));
  if (batch == nullptr) return absl::OkStatus();  // it was refused
  HPS_ASSIGN_OR_RETURN(TritonModel * model, ModelOf(instance));
  SharedStore::ReturnSlot(model->served(), batch->slot());
  return absl::OkStatus();
}

absl::Status InitializeBackend(TRITONBACKEND_Backend* backend) {
  HPS_RETURN_IF_ERROR(CheckApiVersion());
  return FindNetworkCheck(backend);
}

absl::Status InitializeModel(TRITONBACKEND_Model* model) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<TritonModel> loaded, TritonModel::Load(model));
  return FromTriton(TRITONBACKEND_ModelSetState(model, loaded.release()));
}

absl::Status FinalizeModel(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelState(model, &state)));
  const std::unique_ptr<TritonModel> last(static_cast<TritonModel*>(state));
  return absl::OkStatus();
}

// An error that is returned leaves the requests to Triton; there is none after the first of them.
absl::Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                     uint32_t count) {
  void* state = nullptr;
  HPS_RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceState(instance, &state)));
  static_cast<RequestBatch*>(state)->Execute(instance, requests, count);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hps::triton

using hps::triton::Enter;

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return Enter([&] { return hps::triton::InitializeBackend(backend); });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
  hps::triton::KeyMetrics::Finalize();
  return nullptr;
}

// A model that names no instances gets some of the CPU, also on a machine with GPUs.
TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attributes, hps::triton::kKindCpu, hps::triton::kInstancesDefault, nullptr, 0);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return Enter([&] { return hps::triton::InitializeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return Enter([&] { return hps::triton::FinalizeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return Enter([&] { return hps::triton::InitializeInstance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return Enter([&] { return hps::triton::FinalizeInstance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count) {
  return Enter([&] { return hps::triton::Execute(instance, requests, count); });
}
