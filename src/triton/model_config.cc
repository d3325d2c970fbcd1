#include "triton/model_config.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "inference/prediction_plan.h"
#include "inference/request_plan.h"
#include "nlohmann/json.hpp"
#include "types/names.h"

namespace hps::triton {
namespace {

using Json = nlohmann::json;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::StatusOr<Json> Parse(std::string_view json) {
  Json config = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (config.is_object()) return config;
  return absl::InvalidArgumentError("Triton's configuration of the model is no JSON object");
}

const Json* Member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::vector<std::string> NamesOf(const Json& config, const char* list) {
  std::vector<std::string> names;
  const Json* const tensors = Member(config, list);
  if (tensors == nullptr || !tensors->is_array()) return names;
  for (const Json& tensor : *tensors) names.push_back(tensor.value("name", std::string()));
  return names;
}

absl::StatusOr<std::string> TextOf(const std::string& parameter, const Json& value) {
  const Json* const text = Member(value, "string_value");
  if (text == nullptr || !text->is_string() || text->get<std::string>().empty())
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter, "' has no string_value"));
  return text->get<std::string>();
}

absl::Status ReadParameters(const Json& parameters, ModelSettings& settings) {
  for (const auto& [name, value] : parameters.items()) {
    if (name == "ps") {
      return absl::InvalidArgumentError(
          "parameter 'ps' is of HugeCTR's backend: 'hps convert-config' makes an hps.toml of such "
          "a file; name it with parameter 'config'");
    }
    if (name != "config" && name != "read_only") continue;  // Triton has parameters of its own
    HPS_ASSIGN_OR_RETURN(const std::string text, TextOf(name, value));
    if (name == "config") {
      settings.configuration = text;
    } else if (text == "true" || text == "false") {
      settings.is_read_only = text == "true";
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter 'read_only' is '", text, "', expected 'true' or 'false'"));
    }
  }
  return absl::OkStatus();
}

void ReadInstances(const Json& groups, ModelSettings& settings) {
  size_t count = 0;
  for (const Json& group : groups) {
    if (!group.is_object()) continue;
    count += group.value("count", size_t{1});
    settings.has_gpu_group |= group.value("kind", std::string()) == "KIND_GPU";
  }
  settings.instance_count = std::max<size_t>(count, 1);
}

bool IsOffsets(const TensorMetadata& tensor) { return tensor.name.ends_with(kOffsetsSuffix); }

// The outputs that a request may name: also the status of OUTPUT0, which metadata leaves out.
std::vector<TensorMetadata> OutputsOf(const ModelMetadata& metadata) {
  std::vector<TensorMetadata> outputs = metadata.outputs;
  for (const TensorMetadata& output : metadata.outputs) {
    if (output.name != kRowsOutput) continue;
    outputs.push_back(
        {.name = std::string(kStatusOutput), .datatype = Datatype::kUint8, .shape = {-1}});
  }
  return outputs;
}

// One input or output. With a batch, the first dimension is not written; a number for each sample
// is written as one of shape [1], which Triton does not do without.
Json Describe(const TensorMetadata& tensor, bool is_batched) {
  Json dims = Json::array();
  for (size_t i = is_batched ? 1 : 0; i < tensor.shape.size(); ++i) dims.push_back(tensor.shape[i]);
  return {{"name", tensor.name},
          {"data_type", absl::StrCat("TYPE_", View(tensor.datatype == Datatype::kBytes
                                                       ? "STRING"
                                                       : DatatypeName(tensor.datatype)))},
          {"dims", std::move(dims)}};
}

// Keys of a table come as [batch, k] with a batch, and as [n] without; their rows and status
// likewise.
bool IsOfKeys(const TensorMetadata& tensor, const ModelMetadata& metadata) {
  return std::any_of(metadata.tables.begin(), metadata.tables.end(), [&](const TableSpec& table) {
    const std::string name = table.name.substr(table.name.find('/') + 1);
    return tensor.name == name || tensor.name == name + std::string(kStatusSuffix);
  });
}

Json Tensors(const std::vector<TensorMetadata>& tensors, const ModelMetadata& metadata,
             bool is_batched, bool is_input) {
  Json list = Json::array();
  for (const TensorMetadata& tensor : tensors) {
    // Offsets are one more than the samples, so that they have no batch.
    if (is_batched && is_input && IsOffsets(tensor)) continue;
    const bool is_flat = tensor.shape.size() == 1;
    Json described = Describe(tensor, is_batched);
    if (is_batched && is_flat) {
      // [batch, k], and OUTPUT0 as [1, n]; or a number of each sample.
      const bool is_ragged = IsOfKeys(tensor, metadata) || tensor.name.starts_with(kRowsOutput);
      described["dims"] = Json::array({is_ragged ? -1 : 1});
      if (!is_ragged) described["reshape"] = {{"shape", Json::array()}};
    } else if (is_batched && IsOfKeys(tensor, metadata)) {
      described["dims"].insert(described["dims"].begin(), -1);
    }
    if (is_input) {
      described["optional"] = true;  // keys come in one of several ways
      const Json& dims = described["dims"];
      if (is_batched && std::find(dims.begin(), dims.end(), -1) != dims.end())
        described["allow_ragged_batch"] = true;
    }
    list.push_back(std::move(described));
  }
  return list;
}

bool IsEmpty(const Json& config, const char* name) {
  const Json* const member = Member(config, name);
  return member == nullptr || member->empty();
}

absl::Status CheckNames(const char* kind, std::span<const std::string> declared,
                        const std::vector<TensorMetadata>& tensors) {
  std::vector<std::string> names;
  for (const TensorMetadata& tensor : tensors) names.push_back(tensor.name);
  for (const std::string& name : declared) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("config.pbtxt declares the ", kind, " '", name,
                                                   "', which the model does not have",
                                                   NearestNameHint(name, names)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSettings> ReadModelConfig(std::string_view json) {
  HPS_ASSIGN_OR_RETURN(const Json config, Parse(json));
  ModelSettings settings;
  if (const Json* parameters = Member(config, "parameters"); parameters != nullptr)
    HPS_RETURN_IF_ERROR(ReadParameters(*parameters, settings));
  if (const Json* groups = Member(config, "instance_group"); groups != nullptr)
    ReadInstances(*groups, settings);
  const Json* const batch = Member(config, "max_batch_size");
  settings.is_batched = batch != nullptr && batch->is_number_integer() && batch->get<int64_t>() > 0;
  settings.inputs = NamesOf(config, "input");
  settings.outputs = NamesOf(config, "output");
  return settings;
}

absl::StatusOr<std::string> CompleteModelConfig(std::string_view json,
                                                const ModelMetadata& metadata) {
  HPS_ASSIGN_OR_RETURN(Json config, Parse(json));
  HPS_ASSIGN_OR_RETURN(const ModelSettings settings, ReadModelConfig(json));
  const bool is_batched = settings.is_batched;
  if (IsEmpty(config, "input"))
    config["input"] = Tensors(metadata.inputs, metadata, is_batched, /*is_input=*/true);
  if (IsEmpty(config, "output"))
    config["output"] = Tensors(OutputsOf(metadata), metadata, is_batched, /*is_input=*/false);
  const bool has_scheduling =
      Member(config, "dynamic_batching") != nullptr || !IsEmpty(config, "sequence_batching");
  if (is_batched && !has_scheduling) config["dynamic_batching"] = Json::object();
  return config.dump();
}

absl::Status CheckDeclared(const ModelSettings& settings, const ModelMetadata& metadata) {
  HPS_RETURN_IF_ERROR(CheckNames("input", settings.inputs, metadata.inputs));
  return CheckNames("output", settings.outputs, OutputsOf(metadata));
}

}  // namespace hps::triton
