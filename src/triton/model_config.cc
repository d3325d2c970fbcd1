#include "triton/model_config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// Numbers; Triton writes some of 64 bits as text.
std::vector<int64_t> DimsOf(const Json& list) {
  std::vector<int64_t> dims;
  for (const Json& dim : list) {
    int64_t number = -1;
    if (dim.is_number_integer()) number = dim.get<int64_t>();
    if (dim.is_string() && !absl::SimpleAtoi(dim.get<std::string>(), &number)) number = -1;
    dims.push_back(number);
  }
  return dims;
}

std::vector<DeclaredTensor> DeclaredOf(const Json& config, const char* list, bool is_batched) {
  std::vector<DeclaredTensor> declared;
  const Json* const tensors = Member(config, list);
  if (tensors == nullptr || !tensors->is_array()) return declared;
  for (const Json& tensor : *tensors) {
    DeclaredTensor& added =
        declared.emplace_back(DeclaredTensor{.name = tensor.value("name", std::string())});
    added.type = tensor.value("data_type", std::string());
    const Json* const reshape = Member(tensor, "reshape");
    const Json* const dims =
        reshape == nullptr ? Member(tensor, "dims") : Member(*reshape, "shape");
    if (reshape == nullptr && dims == nullptr) continue;
    added.shape = dims == nullptr ? std::vector<int64_t>() : DimsOf(*dims);
    if (is_batched) added.shape->insert(added.shape->begin(), -1);
  }
  return declared;
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

std::string TypeOf(Datatype datatype) {
  return absl::StrCat("TYPE_",
                      View(datatype == Datatype::kBytes ? "STRING" : DatatypeName(datatype)));
}

bool IsTable(std::string_view name, const ModelMetadata& metadata) {
  return std::any_of(metadata.tables.begin(), metadata.tables.end(), [&](const TableSpec& table) {
    return name == std::string_view(table.name).substr(table.name.find('/') + 1);
  });
}

// Whether it is of the keys of a table, which come as [batch, k] with a batch, and as [n] or
// [batch, k] without: the keys, or the status of each.
bool IsOfKeys(std::string_view name, const ModelMetadata& metadata) {
  if (IsTable(name, metadata)) return true;
  if (!name.ends_with(kStatusSuffix)) return false;
  name.remove_suffix(kStatusSuffix.size());
  return IsTable(name, metadata);
}

// Whether it is of all tables together, [n], or [1, n] with a batch.
bool IsJoint(std::string_view name, const ModelMetadata& metadata) {
  return (name == kRowsOutput || name == kStatusOutput) && !IsTable(kRowsOutput, metadata);
}

// The outputs that a request may name: also the status of OUTPUT0, which metadata leaves out.
std::vector<TensorMetadata> OutputsOf(const ModelMetadata& metadata) {
  std::vector<TensorMetadata> outputs = metadata.outputs;
  for (const TensorMetadata& output : metadata.outputs) {
    if (output.name != kRowsOutput || IsTable(kRowsOutput, metadata)) continue;
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
  return {{"name", tensor.name}, {"data_type", TypeOf(tensor.datatype)}, {"dims", std::move(dims)}};
}

Json Tensors(const std::vector<TensorMetadata>& tensors, const ModelMetadata& metadata,
             bool is_batched, bool is_input) {
  Json list = Json::array();
  std::set<std::string> names;  // an output of the network may be named as one of the tables'
  for (const TensorMetadata& tensor : tensors) {
    if (!names.insert(tensor.name).second) continue;
    // Offsets are one more than the samples, so that they have no batch.
    if (is_batched && is_input && IsOffsets(tensor)) continue;
    const bool is_flat = tensor.shape.size() == 1;
    Json described = Describe(tensor, is_batched);
    if (is_batched && is_flat) {
      // [batch, k], and OUTPUT0 as [1, n]; or a number of each sample.
      const bool is_ragged = IsOfKeys(tensor.name, metadata) || IsJoint(tensor.name, metadata);
      described["dims"] = Json::array({is_ragged ? -1 : 1});
      if (!is_ragged) described["reshape"] = {{"shape", Json::array()}};
    } else if (is_batched && IsOfKeys(tensor.name, metadata)) {
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

using Shapes = std::vector<std::vector<int64_t>>;

// The shapes that a tensor of the model can have; -1 = any.
Shapes ShapesOf(const TensorMetadata& tensor, const ModelMetadata& metadata) {
  const std::vector<int64_t>& shape = tensor.shape;
  if (IsOfKeys(tensor.name, metadata)) {  // of keys [n], or [batch, k]
    std::vector<int64_t> of_batch = shape;
    of_batch.insert(of_batch.begin(), -1);
    return {shape, of_batch};
  }
  if (IsJoint(tensor.name, metadata)) return {shape, {1, -1}};
  if (shape.size() == 2 && shape[0] == 1) return {shape, {shape[1]}};  // KEYS and others
  return {shape};
}

bool Fits(const std::vector<int64_t>& declared, const std::vector<int64_t>& shape) {
  return std::equal(declared.begin(), declared.end(), shape.begin(), shape.end(),
                    [](int64_t a, int64_t b) { return a < 0 || b < 0 || a == b; });
}

bool FitsType(const DeclaredTensor& declared, const TensorMetadata& tensor,
              const ModelMetadata& metadata) {
  if (declared.type.empty() || declared.type == TypeOf(tensor.datatype)) return true;
  if (tensor.datatype != Datatype::kInt64) return false;
  if (IsOffsets(tensor)) return declared.type == TypeOf(Datatype::kInt32);
  const bool is_keys =
      IsTable(tensor.name, metadata) || tensor.name == kKeysInput || tensor.name == kColumnsInput;
  return is_keys &&
         (declared.type == TypeOf(Datatype::kUint64) || declared.type == TypeOf(Datatype::kInt32) ||
          declared.type == TypeOf(Datatype::kUint32));
}

std::string Describe(const std::string& type, const std::vector<int64_t>& shape) {
  return absl::StrCat(type, " [", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckTensor(const char* kind, const DeclaredTensor& declared,
                         const std::vector<TensorMetadata>& tensors,
                         const ModelMetadata& metadata) {
  std::vector<std::string> names;
  std::vector<std::string> wanted;
  for (const TensorMetadata& tensor : tensors) {
    names.push_back(tensor.name);
    if (tensor.name != declared.name) continue;
    const Shapes shapes = ShapesOf(tensor, metadata);
    const bool fits_shape = !declared.shape.has_value() ||
                            std::any_of(shapes.begin(), shapes.end(), [&](const auto& shape) {
                              return Fits(*declared.shape, shape);
                            });
    if (fits_shape && FitsType(declared, tensor, metadata)) return absl::OkStatus();
    for (const auto& shape : shapes) wanted.push_back(Describe(TypeOf(tensor.datatype), shape));
  }
  if (wanted.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.pbtxt declares the ", kind, " '", declared.name,
                     "', which the model does not have", NearestNameHint(declared.name, names)));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "config.pbtxt declares the ", kind, " '", declared.name, "' as ",
      Describe(declared.type, declared.shape.value_or(std::vector<int64_t>())), ", but it is ",
      absl::StrJoin(wanted, " or "),
      " (-1: any number; with max_batch_size, the first is the batch). A declaration that is left "
      "out is filled in"));
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
  settings.inputs = DeclaredOf(config, "input", settings.is_batched);
  settings.outputs = DeclaredOf(config, "output", settings.is_batched);
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
  try {
    return config.dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name of an input or output can't be written into Triton's configuration: ",
        error.what()));
  }
}

absl::Status CheckDeclared(const ModelSettings& settings, const ModelMetadata& metadata) {
  for (const DeclaredTensor& declared : settings.inputs)
    HPS_RETURN_IF_ERROR(CheckTensor("input", declared, metadata.inputs, metadata));
  const std::vector<TensorMetadata> outputs = OutputsOf(metadata);
  for (const DeclaredTensor& declared : settings.outputs)
    HPS_RETURN_IF_ERROR(CheckTensor("output", declared, outputs, metadata));
  return absl::OkStatus();
}

}  // namespace hps::triton
