#include "server/grpc/control_methods.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "server/core/server_identity.h"
#include "server/grpc/proto/grpc/health/v1/health.pb.h"
#include "server/grpc/proto/inference.pb.h"
#include "server/grpc/reflection.h"

namespace hps::server {
namespace {

constexpr const char* kServiceName = "inference.GRPCInferenceService";

using grpc::health::v1::HealthCheckResponse;

template <typename Message>
absl::StatusOr<Message> Parse(std::string_view bytes) {
  // Clients without a token could fill the log, because protobuf writes each error to stderr.
  const google::protobuf::LogSilencer silencer;
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid ", Message::descriptor()->name(), " message"));
  }
  return message;
}

inference::DataType ProtocolType(Datatype datatype) {
  if (datatype == Datatype::kBytes) return inference::TYPE_STRING;
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse("TYPE_" + std::string(DatatypeName(datatype)), &type);
  return type;
}

void Describe(const TensorMetadata& tensor,
              inference::ModelMetadataResponse::TensorMetadata* description) {
  description->set_name(tensor.name);
  const std::string_view datatype = DatatypeName(tensor.datatype);
  description->set_datatype(datatype.data(), datatype.size());
  for (const int64_t dim : tensor.shape) description->add_shape(dim);
}

void Describe(const ModelServerStatistics& model, inference::ModelStatistics* statistics) {
  // Every stage reports the number of requests. The stages' own counts differ while calls are
  // between two stages, and perf_analyzer stops if the reported counts differ.
  const auto set_stage = [&model](Stage stage, inference::StatisticDuration* duration) {
    duration->set_count(model.requests);
    duration->set_ns(model.stages[static_cast<size_t>(stage)].sum_ns);
  };
  statistics->set_name(model.model);
  statistics->set_version(model.version);
  statistics->set_last_inference(model.last_request_unix_ms);
  statistics->set_inference_count(model.requests);
  statistics->set_execution_count(model.batches);
  inference::InferStatistics* times = statistics->mutable_inference_stats();
  set_stage(Stage::kTotal, times->mutable_success());
  times->mutable_fail()->set_count(model.requests_failed);
  times->mutable_fail()->set_ns(model.failed_ns);
  set_stage(Stage::kQueue, times->mutable_queue());
  set_stage(Stage::kDecode, times->mutable_compute_input());
  set_stage(Stage::kLookup, times->mutable_compute_infer());
  set_stage(Stage::kEncode, times->mutable_compute_output());
  for (size_t i = 0; i < model.batch_sizes.size(); ++i) {
    const auto& [calls, lookups] = model.batch_sizes[i];
    inference::InferBatchStatistics* batch = statistics->add_batch_stats();
    batch->set_batch_size(calls);
    batch->mutable_compute_input()->set_count(lookups);
    batch->mutable_compute_infer()->set_count(lookups);
    batch->mutable_compute_infer()->set_ns(model.batch_lookup_ns[i]);
    batch->mutable_compute_output()->set_count(lookups);
  }
}

// Whether health tells of this service; the empty name is the server.
bool IsServed(std::string_view service) { return service.empty() || service == kServiceName; }

HealthCheckResponse HealthOf(const ModelRepository& repository) {
  HealthCheckResponse answer;
  answer.set_status(repository.ServerReady() ? HealthCheckResponse::SERVING
                                             : HealthCheckResponse::NOT_SERVING);
  return answer;
}

}  // namespace

std::span<const ControlMethods::Method> ControlMethods::methods() {
  using Self = ControlMethods;
  static constexpr std::array kMethods = {
      Method{"/inference.GRPCInferenceService/ServerLive", &Self::ServerLive, Kind::kHealth},
      Method{"/inference.GRPCInferenceService/ServerReady", &Self::ServerReady, Kind::kHealth},
      Method{"/inference.GRPCInferenceService/ModelReady", &Self::ModelReady, Kind::kHealth},
      Method{"/grpc.health.v1.Health/Check", &Self::HealthCheck, Kind::kHealth},
      Method{"/grpc.health.v1.Health/List", &Self::HealthList, Kind::kHealth},
      Method{"/grpc.health.v1.Health/Watch", &Self::HealthWatch, Kind::kWatch},
      Method{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &Self::Reflection,
             Kind::kStream},
      Method{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &Self::Reflection,
             Kind::kStream},
      Method{"/inference.GRPCInferenceService/ServerMetadata", &Self::ServerMetadata},
      Method{"/inference.GRPCInferenceService/ModelMetadata", &Self::DescribeModel},
      Method{"/inference.GRPCInferenceService/ModelConfig", &Self::ModelConfiguration},
      Method{"/inference.GRPCInferenceService/ModelStatistics", &Self::Statistics},
      Method{"/inference.GRPCInferenceService/RepositoryIndex", &Self::RepositoryIndex},
      Method{"/inference.GRPCInferenceService/RepositoryModelLoad", &Self::Load, Kind::kSlow},
      Method{"/inference.GRPCInferenceService/RepositoryModelUnload", &Self::Unload, Kind::kSlow},
      Method{"/inference.GRPCInferenceService/SystemSharedMemoryStatus", &Self::SharedMemory},
      Method{"/inference.GRPCInferenceService/SystemSharedMemoryRegister", &Self::SharedMemory},
      Method{"/inference.GRPCInferenceService/SystemSharedMemoryUnregister", &Self::SharedMemory},
      Method{"/inference.GRPCInferenceService/CudaSharedMemoryStatus", &Self::SharedMemory},
      Method{"/inference.GRPCInferenceService/CudaSharedMemoryRegister", &Self::SharedMemory},
      Method{"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", &Self::SharedMemory},
      Method{"/inference.GRPCInferenceService/TraceSetting", &Self::Settings},
      Method{"/inference.GRPCInferenceService/LogSettings", &Self::Settings},
  };
  return kMethods;
}

const ControlMethods::Method* ControlMethods::Find(std::string_view path) {
  const auto found = std::find_if(methods().begin(), methods().end(),
                                  [path](const Method& method) { return method.path == path; });
  return found == methods().end() ? nullptr : &*found;
}

ControlMethods::Answer ControlMethods::HealthCheck(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<grpc::health::v1::HealthCheckRequest>(request));
  if (!IsServed(asked.service())) {
    return absl::NotFoundError("unknown service; the server has 'inference.GRPCInferenceService'");
  }
  return HealthOf(*parts_.repository).SerializeAsString();
}

// For Watch, an unknown service is an answer and not an error.
ControlMethods::Answer ControlMethods::HealthWatch(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<grpc::health::v1::HealthCheckRequest>(request));
  HealthCheckResponse answer = HealthOf(*parts_.repository);
  if (!IsServed(asked.service())) answer.set_status(HealthCheckResponse::SERVICE_UNKNOWN);
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::HealthList(std::string_view request) const {
  HPS_RETURN_IF_ERROR(Parse<grpc::health::v1::HealthListRequest>(request).status());
  grpc::health::v1::HealthListResponse answer;
  for (const char* const service : {"", kServiceName})
    (*answer.mutable_statuses())[service] = HealthOf(*parts_.repository);
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::Reflection(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked,
                       Parse<grpc::reflection::v1::ServerReflectionRequest>(request));
  return Reflect(asked).SerializeAsString();
}

ControlMethods::Answer ControlMethods::ServerLive(std::string_view request) const {
  HPS_RETURN_IF_ERROR(Parse<inference::ServerLiveRequest>(request).status());
  inference::ServerLiveResponse answer;
  answer.set_live(true);
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::ServerReady(std::string_view request) const {
  HPS_RETURN_IF_ERROR(Parse<inference::ServerReadyRequest>(request).status());
  inference::ServerReadyResponse answer;
  answer.set_ready(parts_.repository->ServerReady());
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::ModelReady(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::ModelReadyRequest>(request));
  inference::ModelReadyResponse answer;
  answer.set_ready(parts_.repository->Metadata(asked.name(), asked.version()).ok());
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::ServerMetadata(std::string_view request) const {
  HPS_RETURN_IF_ERROR(Parse<inference::ServerMetadataRequest>(request).status());
  inference::ServerMetadataResponse answer;
  answer.set_name(std::string(kServerName));
  answer.set_version(std::string(ServerVersion()));
  for (const std::string_view extension : kServerExtensions) {
    answer.add_extensions(std::string(extension));
  }
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::DescribeModel(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::ModelMetadataRequest>(request));
  HPS_ASSIGN_OR_RETURN(const ModelMetadata model,
                       parts_.repository->Metadata(asked.name(), asked.version()));
  inference::ModelMetadataResponse answer;
  answer.set_name(model.name);
  answer.add_versions(model.version);
  answer.set_platform(std::string(kModelPlatform));
  for (const TensorMetadata& input : model.inputs) Describe(input, answer.add_inputs());
  for (const TensorMetadata& output : model.outputs) Describe(output, answer.add_outputs());
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::ModelConfiguration(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::ModelConfigRequest>(request));
  HPS_ASSIGN_OR_RETURN(const ModelMetadata model,
                       parts_.repository->Metadata(asked.name(), asked.version()));
  inference::ModelConfigResponse answer;
  inference::ModelConfig* config = answer.mutable_config();
  config->set_name(model.name);
  config->set_backend(std::string(kModelBackend));
  config->mutable_version_policy()->mutable_latest()->set_num_versions(1);
  const auto describe = [](const TensorMetadata& tensor, auto* description) {
    description->set_name(tensor.name);
    description->set_data_type(ProtocolType(tensor.datatype));
    for (const int64_t dim : tensor.shape) description->add_dims(dim);
  };
  for (const TensorMetadata& tensor : model.inputs) {
    inference::ModelInput* input = config->add_input();
    describe(tensor, input);
    // There are two ways to send a table's keys, so each input is optional.
    input->set_optional(true);
  }
  for (const TensorMetadata& tensor : model.outputs) describe(tensor, config->add_output());
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::Statistics(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::ModelStatisticsRequest>(request));
  if (!asked.name().empty()) {
    HPS_RETURN_IF_ERROR(parts_.repository->Metadata(asked.name(), asked.version()).status());
  }
  inference::ModelStatisticsResponse answer;
  for (const ModelServerStatistics& model : parts_.statistics->Snapshot().models) {
    if (asked.name().empty() || model.model == asked.name()) {
      Describe(model, answer.add_model_stats());
    }
  }
  return answer.SerializeAsString();
}

ControlMethods::Answer ControlMethods::RepositoryIndex(std::string_view request) const {
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::RepositoryIndexRequest>(request));
  inference::RepositoryIndexResponse answer;
  for (const ModelIndexEntry& entry : parts_.repository->Index()) {
    if (asked.ready() && entry.state != ModelState::kReady) continue;
    inference::RepositoryIndexResponse::ModelIndex* model = answer.add_models();
    model->set_name(entry.name);
    model->set_version(entry.version);
    model->set_state(kModelStateNames[static_cast<size_t>(entry.state)]);
    model->set_reason(entry.reason);
  }
  return answer.SerializeAsString();
}

absl::Status ControlMethods::CheckControl() const {
  if (control_.allowed) return absl::OkStatus();
  parts_.counters->CountAuthFailure();
  return absl::PermissionDeniedError(
      "loading and unloading are disabled; to enable them, set [server.security] "
      "repository_control and a token");
}

ControlMethods::Answer ControlMethods::Load(std::string_view request) const {
  HPS_RETURN_IF_ERROR(CheckControl());
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::RepositoryModelLoadRequest>(request));
  if (asked.parameters_size() > 0) return LoadTakesNoParameters();
  HPS_RETURN_IF_ERROR(parts_.repository->Load(asked.model_name()));
  return inference::RepositoryModelLoadResponse().SerializeAsString();
}

ControlMethods::Answer ControlMethods::Unload(std::string_view request) const {
  HPS_RETURN_IF_ERROR(CheckControl());
  HPS_ASSIGN_OR_RETURN(const auto asked, Parse<inference::RepositoryModelUnloadRequest>(request));
  HPS_RETURN_IF_ERROR(parts_.repository->Unload(asked.model_name()));
  return inference::RepositoryModelUnloadResponse().SerializeAsString();
}

ControlMethods::Answer ControlMethods::SharedMemory(std::string_view) const {
  return absl::UnimplementedError("shared memory is not supported; send tensors with the request");
}

ControlMethods::Answer ControlMethods::Settings(std::string_view) const {
  return absl::UnimplementedError(
      "trace and log settings cannot be changed by API; change the server's configuration");
}

}  // namespace hps::server
