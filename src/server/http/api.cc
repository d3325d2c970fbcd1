#include "server/http/api.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/macros.h"
#include "server/core/server_identity.h"
#include "server/http/json_reader.h"

namespace hps::server {
namespace {

using Json = nlohmann::ordered_json;

Page JsonAnswer(const Json& json) {
  std::string text;
  JsonWriter(&text).Value(json);
  return JsonPage(std::move(text));
}

Json TensorsJson(const std::vector<TensorMetadata>& tensors) {
  Json list = Json::array();
  for (const TensorMetadata& tensor : tensors) {
    list.push_back({{"name", tensor.name},
                    {"datatype", DatatypeName(tensor.datatype)},
                    {"shape", tensor.shape}});
  }
  return list;
}

Json MetadataJson(const ModelMetadata& model) {
  return {{"name", model.name},
          {"versions", Json::array({model.version})},
          {"platform", kModelPlatform},
          {"inputs", TensorsJson(model.inputs)},
          {"outputs", TensorsJson(model.outputs)}};
}

std::string ConfigDatatype(Datatype datatype) {
  if (datatype == Datatype::kBytes) return "TYPE_STRING";
  return std::string("TYPE_").append(DatatypeName(datatype));
}

Json ConfigTensorsJson(const std::vector<TensorMetadata>& tensors, bool is_input) {
  Json list = Json::array();
  for (const TensorMetadata& tensor : tensors) {
    Json& json = list.emplace_back();
    json["name"] = tensor.name;
    json["data_type"] = ConfigDatatype(tensor.datatype);
    if (is_input) json["format"] = "FORMAT_NONE";
    json["dims"] = tensor.shape;
    json["is_shape_tensor"] = false;
    // A request brings its tables' keys one way or the other, so each input alone is optional.
    if (is_input) json["optional"] = true;
    if (!is_input) json["label_filename"] = "";
  }
  return list;
}

Json ConfigJson(const ModelMetadata& model) {
  Json json = {{"name", model.name},
               {"platform", ""},
               {"backend", kModelBackend},
               {"version_policy", {{"latest", {{"num_versions", 1}}}}},
               {"max_batch_size", 0},
               {"input", ConfigTensorsJson(model.inputs, /*is_input=*/true)},
               {"output", ConfigTensorsJson(model.outputs, /*is_input=*/false)}};
  for (const char* key : {"batch_input", "batch_output", "instance_group", "model_warmup"})
    json[key] = Json::array();
  for (const char* key : {"cc_model_filenames", "metric_tags", "parameters"})
    json[key] = Json::object();
  json["default_model_filename"] = "";
  json["model_transaction_policy"] = {{"decoupled", false}};
  return json;
}

Json DurationJson(uint64_t count, uint64_t ns) { return {{"count", count}, {"ns", ns}}; }

// Where Triton counts a backend's input and output, this server decodes and encodes.
Json StatisticsJson(const ModelServerStatistics& model) {
  // Every stage has the count of the requests: calls that are between two stages right now would
  // make the stages' own differ, and perf_analyzer ends over that.
  const auto stage = [&model](Stage stage) {
    return DurationJson(model.requests, model.stages[static_cast<size_t>(stage)].sum_ns);
  };
  Json batches = Json::array();
  for (size_t i = 0; i < model.batch_sizes.size(); ++i) {
    const auto& [calls, lookups] = model.batch_sizes[i];
    const Json counted = DurationJson(lookups, 0);  // each request is decoded by itself
    batches.push_back({{"batch_size", calls},
                       {"compute_input", counted},
                       {"compute_infer", DurationJson(lookups, model.batch_lookup_ns[i])},
                       {"compute_output", counted}});
  }
  return {{"name", model.model},
          {"version", model.version},
          {"last_inference", model.last_request_unix_ms},
          {"inference_count", model.requests},
          {"execution_count", model.batches},
          {"inference_stats",
           {{"success", stage(Stage::kTotal)},
            {"fail", DurationJson(model.requests_failed, model.failed_ns)},
            {"queue", stage(Stage::kQueue)},
            {"compute_input", stage(Stage::kDecode)},
            {"compute_infer", stage(Stage::kLookup)},
            {"compute_output", stage(Stage::kEncode)},
            {"cache_hit", DurationJson(0, 0)},
            {"cache_miss", DurationJson(0, 0)}}},
          {"response_stats", Json::object()},
          {"batch_stats", std::move(batches)},
          {"memory_usage", Json::array()}};
}

Page StatisticsAnswer(const ServerStatistics& statistics, std::string_view model) {
  Json models = Json::array();
  for (const ModelServerStatistics& each : statistics.models) {
    if (model.empty() || each.model == model) models.push_back(StatisticsJson(each));
  }
  return JsonAnswer({{"model_stats", std::move(models)}});
}

absl::StatusOr<Page> IndexAnswer(const ModelRepository& repository, std::span<char> body) {
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
  Json index = Json::array();
  for (const ModelIndexEntry& entry : repository.Index()) {
    if (ready_only && entry.state != ModelState::kReady) continue;
    Json& json = index.emplace_back();
    json["name"] = entry.name;
    if (!entry.version.empty()) json["version"] = entry.version;
    json["state"] = kModelStateNames[static_cast<size_t>(entry.state)];
    if (!entry.reason.empty()) json["reason"] = entry.reason;
  }
  return JsonAnswer(index);
}

absl::StatusOr<Page> ModelAnswer(const ProtocolParts& parts, const Route& route) {
  HPS_ASSIGN_OR_RETURN(const ModelMetadata metadata,
                       parts.repository->Metadata(route.model, route.version));
  switch (route.kind) {
    case RouteKind::kModelMetadata:
      return JsonAnswer(MetadataJson(metadata));
    case RouteKind::kModelConfig:
      return JsonAnswer(ConfigJson(metadata));
    case RouteKind::kModelStatistics:
      return StatisticsAnswer(parts.statistics->Snapshot(), route.model);
    default:
      return JsonAnswer({{"name", metadata.name}, {"ready", true}});
  }
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

absl::StatusOr<Page> AnswerApi(const ProtocolParts& parts, const Route& route,
                               std::string_view query, std::span<char> body) {
  switch (route.kind) {
    // As the Open Inference Protocol and KServe write it; Triton's clients look at the status
    // alone.
    case RouteKind::kLive:
      return JsonAnswer({{"live", true}});
    case RouteKind::kReady:
      if (parts.repository->ServerReady()) return JsonAnswer({{"ready", true}});
      return absl::UnavailableError("the server is not ready");
    case RouteKind::kServerMetadata:
      return JsonAnswer(
          {{"name", kServerName}, {"version", ServerVersion()}, {"extensions", kServerExtensions}});
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
      if (parts.pages == nullptr) return absl::NotFoundError("there is no such page");
      return parts.pages->Get(route.path, query);
    case RouteKind::kUnknown:
      return absl::NotFoundError("there is no such path");
    default:
      return ModelAnswer(parts, route);
  }
}

}  // namespace hps::server
