#include "server/http/api.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "server/core/server_identity.h"
#include "server/http/json_reader.h"

namespace hps::server {
namespace {

std::string_view StateName(ModelState state) {
  switch (state) {
    case ModelState::kReady:
      return "READY";
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kUnavailable:
      break;
  }
  return "UNAVAILABLE";
}

// As the Open Inference Protocol and KServe write it; Triton's clients look at the status alone.
ApiAnswer HealthAnswer(std::string_view what, std::string_view model = {}) {
  ApiAnswer answer;
  JsonWriter json(&answer.text);
  json.BeginObject();
  if (!model.empty()) json.Member("name", model);
  json.Member(what, true).EndObject();
  return answer;
}

ApiAnswer ServerMetadata() {
  ApiAnswer answer;
  JsonWriter json(&answer.text);
  json.BeginObject();
  json.Member("name", kServerName);
  json.Member("version", ServerVersion());
  json.Name("extensions");
  json.BeginArray();
  for (const std::string_view extension : kServerExtensions) json.Value(extension);
  json.EndArray();
  json.EndObject();
  return answer;
}

void WriteTensors(std::string_view key, const std::vector<TensorMetadata>& tensors,
                  JsonWriter& json) {
  json.Name(key);
  json.BeginArray();
  for (const TensorMetadata& tensor : tensors) {
    json.BeginObject();
    json.Member("name", tensor.name);
    json.Member("datatype", DatatypeName(tensor.datatype));
    json.Name("shape");
    json.BeginArray();
    for (const int64_t dim : tensor.shape) json.Value(dim);
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
}

ApiAnswer MetadataAnswer(const ModelMetadata& model) {
  ApiAnswer answer;
  JsonWriter json(&answer.text);
  json.BeginObject();
  json.Member("name", model.name);
  json.Name("versions");
  json.BeginArray();
  json.Value(model.version);
  json.EndArray();
  json.Member("platform", kModelPlatform);
  WriteTensors("inputs", model.inputs, json);
  WriteTensors("outputs", model.outputs, json);
  json.EndObject();
  return answer;
}

std::string ConfigDatatype(Datatype datatype) {
  if (datatype == Datatype::kBytes) return "TYPE_STRING";
  return absl::StrCat(
      "TYPE_", absl::string_view(DatatypeName(datatype).data(), DatatypeName(datatype).size()));
}

void WriteConfigTensors(std::string_view key, const std::vector<TensorMetadata>& tensors,
                        JsonWriter& json) {
  const bool is_input = key == "input";
  json.Name(key);
  json.BeginArray();
  for (const TensorMetadata& tensor : tensors) {
    json.BeginObject();
    json.Member("name", tensor.name);
    json.Member("data_type", ConfigDatatype(tensor.datatype));
    if (is_input) json.Member("format", std::string_view("FORMAT_NONE"));
    json.Name("dims");
    json.BeginArray();
    for (const int64_t dim : tensor.shape) json.Value(dim);
    json.EndArray();
    json.Member("is_shape_tensor", false);
    // A request brings its tables' keys one way or the other, so each input alone is optional.
    if (is_input) json.Member("optional", true);
    if (!is_input) json.Member("label_filename", std::string_view());
    json.EndObject();
  }
  json.EndArray();
}

ApiAnswer ConfigAnswer(const ModelMetadata& model) {
  ApiAnswer answer;
  JsonWriter json(&answer.text);
  json.BeginObject();
  json.Member("name", model.name);
  json.Member("platform", std::string_view());
  json.Member("backend", kModelBackend);
  json.Name("version_policy");
  json.BeginObject();
  json.Name("latest");
  json.BeginObject();
  json.Member("num_versions", 1);
  json.EndObject();
  json.EndObject();
  json.Member("max_batch_size", 0);
  WriteConfigTensors("input", model.inputs, json);
  WriteConfigTensors("output", model.outputs, json);
  for (const std::string_view key :
       {"batch_input", "batch_output", "instance_group", "model_warmup"}) {
    json.Name(key);
    json.BeginArray();
    json.EndArray();
  }
  for (const std::string_view key : {"cc_model_filenames", "metric_tags", "parameters"}) {
    json.Name(key);
    json.BeginObject();
    json.EndObject();
  }
  json.Member("default_model_filename", std::string_view());
  json.Name("model_transaction_policy");
  json.BeginObject();
  json.Member("decoupled", false);
  json.EndObject();
  json.EndObject();
  return answer;
}

void WriteDuration(std::string_view key, uint64_t count, uint64_t ns, JsonWriter& json) {
  json.Name(key);
  json.BeginObject();
  json.Member("count", count);
  json.Member("ns", ns);
  json.EndObject();
}

// Every stage has the count of the requests: calls that are between two stages right now would make
// the stages' own differ, and perf_analyzer ends over that.
void WriteStage(std::string_view key, const ModelServerStatistics& model, Stage stage,
                JsonWriter& json) {
  const LatencyHistogram& histogram = model.stages[static_cast<size_t>(stage)];
  WriteDuration(key, model.requests, histogram.sum_ns, json);
}

// Where Triton counts a backend's input and output, this server decodes and encodes.
void WriteStatistics(const ModelServerStatistics& model, JsonWriter& json) {
  json.BeginObject();
  json.Member("name", model.model);
  json.Member("version", model.version);
  json.Member("last_inference", model.last_request_unix_ms);
  json.Member("inference_count", model.requests);
  json.Member("execution_count", model.batches);
  json.Name("inference_stats");
  json.BeginObject();
  WriteStage("success", model, Stage::kTotal, json);
  WriteDuration("fail", model.requests_failed, model.failed_ns, json);
  WriteStage("queue", model, Stage::kQueue, json);
  WriteStage("compute_input", model, Stage::kDecode, json);
  WriteStage("compute_infer", model, Stage::kLookup, json);
  WriteStage("compute_output", model, Stage::kEncode, json);
  WriteDuration("cache_hit", 0, 0, json);
  WriteDuration("cache_miss", 0, 0, json);
  json.EndObject();
  json.Name("response_stats");
  json.BeginObject();
  json.EndObject();
  json.Name("batch_stats");
  json.BeginArray();
  for (size_t i = 0; i < model.batch_sizes.size(); ++i) {
    const auto& [calls, lookups] = model.batch_sizes[i];
    json.BeginObject();
    json.Member("batch_size", calls);
    WriteDuration("compute_input", lookups, 0, json);  // each request is decoded by itself
    WriteDuration("compute_infer", lookups, model.batch_lookup_ns[i], json);
    WriteDuration("compute_output", lookups, 0, json);
    json.EndObject();
  }
  json.EndArray();
  json.Name("memory_usage");
  json.BeginArray();
  json.EndArray();
  json.EndObject();
}

ApiAnswer StatisticsAnswer(const ServerStatistics& statistics, std::string_view model) {
  ApiAnswer answer;
  JsonWriter json(&answer.text);
  json.BeginObject();
  json.Name("model_stats");
  json.BeginArray();
  for (const ModelServerStatistics& each : statistics.models) {
    if (model.empty() || each.model == model) WriteStatistics(each, json);
  }
  json.EndArray();
  json.EndObject();
  return answer;
}

absl::StatusOr<ApiAnswer> IndexAnswer(const ModelRepository& repository, std::span<char> body) {
  bool ready_only = false;
  JsonReader request(body);
  if (request.Peek() != JsonKind::kEnd) {
    std::string_view key;
    request.BeginObject();
    while (request.ok() && request.NextMember(&key)) {
      key == "ready" ? request.ReadBool(&ready_only) : request.SkipValue();
    }
    HPS_RETURN_IF_ERROR(request.Finish());
  }
  ApiAnswer answer;
  JsonWriter json(&answer.text);
  json.BeginArray();
  for (const ModelIndexEntry& entry : repository.Index()) {
    if (ready_only && entry.state != ModelState::kReady) continue;
    json.BeginObject();
    json.Member("name", entry.name);
    if (!entry.version.empty()) json.Member("version", entry.version);
    json.Member("state", StateName(entry.state));
    if (!entry.reason.empty()) json.Member("reason", entry.reason);
    json.EndObject();
  }
  json.EndArray();
  return answer;
}

absl::StatusOr<ApiAnswer> ModelAnswer(const ProtocolParts& parts, const Route& route) {
  HPS_ASSIGN_OR_RETURN(const ModelMetadata metadata,
                       parts.repository->Metadata(route.model, route.version));
  switch (route.kind) {
    case RouteKind::kModelMetadata:
      return MetadataAnswer(metadata);
    case RouteKind::kModelConfig:
      return ConfigAnswer(metadata);
    case RouteKind::kModelStatistics:
      return StatisticsAnswer(parts.statistics->Snapshot(), route.model);
    default:
      return HealthAnswer("ready", metadata.name);
  }
}

absl::StatusOr<ApiAnswer> PageAnswer(PageSource* pages, std::string_view path,
                                     std::string_view query) {
  if (pages == nullptr) return absl::NotFoundError("there is no such page");
  HPS_ASSIGN_OR_RETURN(Page page, pages->Get(path, query));
  ApiAnswer answer;
  answer.content_type = page.content_type;
  answer.text = std::move(page.made);
  answer.fixed = page.fixed;
  return answer;
}

}  // namespace

absl::Status CheckLoad(std::span<char> body) {
  JsonReader json(body);
  if (json.Peek() == JsonKind::kEnd) return absl::OkStatus();
  bool has_parameters = false;
  std::string_view key;
  json.BeginObject();
  while (json.ok() && json.NextMember(&key)) {
    if (key != "parameters") {
      json.SkipValue();
      continue;
    }
    json.BeginObject();
    while (json.ok() && json.NextMember(&key)) has_parameters = json.SkipValue();
  }
  HPS_RETURN_IF_ERROR(json.Finish());
  return has_parameters ? LoadTakesNoParameters() : absl::OkStatus();
}

absl::StatusOr<ApiAnswer> AnswerApi(const ProtocolParts& parts, const Route& route,
                                    std::string_view query, std::span<char> body) {
  switch (route.kind) {
    case RouteKind::kLive:
      return HealthAnswer("live");
    case RouteKind::kReady:
      if (parts.repository->ServerReady()) return HealthAnswer("ready");
      return absl::UnavailableError("the server is not ready");
    case RouteKind::kServerMetadata:
      return ServerMetadata();
    case RouteKind::kServerStatistics:
      return StatisticsAnswer(parts.statistics->Snapshot(), "");
    case RouteKind::kIndex:
      return IndexAnswer(*parts.repository, body);
    case RouteKind::kSharedMemory:
      return absl::UnimplementedError(
          "shared memory regions are not supported: send the tensor's data");
    case RouteKind::kTrace:
      return absl::UnimplementedError("the trace extension is not supported");
    case RouteKind::kLogging:
      return absl::UnimplementedError(
          "the logging extension is not supported: [log] of the configuration sets the log");
    case RouteKind::kPage:
      return PageAnswer(parts.pages, route.path, query);
    case RouteKind::kUnknown:
      return absl::NotFoundError("there is no such path");
    default:
      return ModelAnswer(parts, route);
  }
}

}  // namespace hps::server
