#include "server/http/json_infer_request.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "server/http/tensor_text.h"

namespace hps::server {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// For messages: what the client wrote, but not all of a long text.
absl::string_view Short(std::string_view text) { return View(text.substr(0, 120)); }

absl::Status NoSharedMemory() {
  return absl::UnimplementedError(
      "shared memory regions are not supported: send the tensor's data");
}

// A name or an id: it is echoed, escaped, and goes into messages, outside the pool of buffers.
bool ReadName(JsonReader& json, const char* what, std::string_view* name) {
  if (!json.ReadString(name)) return false;
  if (name->size() <= kProtocolNameBytesMax) return true;
  return json.Fail(absl::OutOfRangeError(
      absl::StrCat(what, " is larger than ", kProtocolNameBytesMax, " bytes")));
}

// Reads an array of at most kInferTensorsMax tensors; `read_one` appends to `tensors`.
template <typename Tensors, typename ReadOne>
void ReadTensors(JsonReader& json, const Tensors& tensors, const char* what, ReadOne read_one) {
  json.BeginArray();
  while (json.ok() && json.NextElement()) {
    if (tensors.size() == kInferTensorsMax) {
      json.Fail(absl::OutOfRangeError(
          absl::StrCat("the request has more than ", kInferTensorsMax, " ", what)));
      return;
    }
    read_one();
  }
}

}  // namespace

void InferDecoder::Reset() {
  ClearTensorList(&inputs_);
  ClearTensorList(&outputs_);
  binary_by_default_ = false;
  is_delete_ = false;
  non_finite_ = NonFinite::kNull;
  failed_in_syntax_ = false;
  tensors_.Release();
}

bool InferDecoder::wants_binary(std::string_view output) const {
  for (const OutputChoice& choice : outputs_) {
    if (choice.name == output) return choice.binary;
  }
  return binary_by_default_;
}

absl::Status InferDecoder::Decode(const Body& body, BufferPool& pool, size_t tensor_bytes_max,
                                  InferenceRequest* request) {
  JsonReader json(body.json);
  const absl::Status read = ReadRequest(json, request);
  if (!read.ok()) {
    failed_in_syntax_ = read.code() == absl::StatusCode::kInvalidArgument;
    return read;
  }
  uint64_t json_bytes = 0;
  HPS_RETURN_IF_ERROR(CheckInputs(tensor_bytes_max, &json_bytes));
  HPS_RETURN_IF_ERROR(PlaceBinary(body.binary));
  if (json_bytes > 0) {
    HPS_ASSIGN_OR_RETURN(tensors_, pool.Acquire(json_bytes, BufferPool::Use::kRequest));
  }
  HPS_RETURN_IF_ERROR(ParseData(body.json.data()));
  for (const Input& input : inputs_) request->inputs.push_back(input.tensor);
  for (const OutputChoice& output : outputs_) request->output_names.push_back(output.name);
  return absl::OkStatus();
}

absl::Status InferDecoder::DecodeRaw(std::span<const std::byte> bytes, std::string table,
                                     InferenceRequest* request) {
  if (bytes.size() % sizeof(int64_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("input '", table, "': ", bytes.size(),
                                                   " bytes are not a whole number of INT64 keys"));
  }
  raw_name_ = std::move(table);
  InputTensor& input = request->inputs.emplace_back();
  input.name = raw_name_;
  input.datatype = Datatype::kInt64;
  input.shape.dims[0] = static_cast<int64_t>(bytes.size() / sizeof(int64_t));
  input.shape.dim_count = 1;
  input.bytes = bytes;
  binary_by_default_ = true;
  return absl::OkStatus();
}

absl::Status InferDecoder::ReadRequest(JsonReader& json, InferenceRequest* request) {
  if (json.Peek() == JsonKind::kEnd) {
    return absl::InvalidArgumentError("the request has no JSON: its body is empty");
  }
  bool seen_inputs = false;
  bool seen_outputs = false;
  std::string_view key;
  json.BeginObject();
  while (json.ok() && json.NextMember(&key)) {
    if (key == "id") {
      ReadName(json, "the id", &request->id);
    } else if (key == "inputs" && !seen_inputs) {
      seen_inputs = true;
      ReadInputs(json);
    } else if (key == "outputs" && !seen_outputs) {
      seen_outputs = true;
      ReadOutputs(json);
    } else if (key == "inputs" || key == "outputs") {
      json.Fail(absl::InvalidArgumentError(absl::StrCat("'", View(key), "' is there twice")));
    } else if (key == "parameters") {
      ReadRequestParameters(json, request);
    } else {
      json.SkipValue();
    }
  }
  HPS_RETURN_IF_ERROR(json.Finish());
  if (!seen_inputs) return absl::InvalidArgumentError("the request has no 'inputs'");
  for (OutputChoice& output : outputs_) {
    if (!output.chosen) output.binary = binary_by_default_;
  }
  return absl::OkStatus();
}

void InferDecoder::ReadRequestParameters(JsonReader& json, InferenceRequest* request) {
  std::string_view key;
  json.BeginObject();
  while (json.ok() && json.NextMember(&key)) {
    if (key == "timeout") {
      uint64_t timeout_us = 0;
      if (json.Peek() != JsonKind::kNumber) {
        json.Fail(absl::InvalidArgumentError("parameter 'timeout' is a number of microseconds"));
      }
      if (!json.ReadUint64(&timeout_us)) return;
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max() / 1000;
      request->timeout = std::chrono::microseconds(std::min(timeout_us, kMax));
    } else if (key == "binary_data_output") {
      json.ReadBool(&binary_by_default_);
    } else if (key == "delete") {
      json.ReadBool(&is_delete_);
    } else if (key == "nonfinite") {
      std::string_view name;
      if (json.Peek() == JsonKind::kString && !json.ReadString(&name)) return;
      if (name != "text" && name != "null") {
        json.Fail(absl::InvalidArgumentError(absl::StrCat(
            "parameter 'nonfinite' is \"text\" or \"null\", not '", Short(name), "'")));
      }
      non_finite_ = name == "text" ? NonFinite::kText : NonFinite::kNull;
    } else {
      json.SkipValue();
    }
  }
}

void InferDecoder::ReadInputs(JsonReader& json) {
  ReadTensors(json, inputs_, "inputs", [&] { ReadInput(json); });
}

void InferDecoder::ReadInput(JsonReader& json) {
  Input& input = inputs_.emplace_back();
  std::string_view key;
  json.BeginObject();
  while (json.ok() && json.NextMember(&key)) ReadInputMember(json, key, &input);
  if (!json.ok()) return;
  const char* const missing = input.tensor.name.empty() ? "name"
                              : !input.has_datatype     ? "datatype"
                              : !input.has_shape        ? "shape"
                                                        : nullptr;
  if (missing == nullptr) return;
  json.Fail(absl::InvalidArgumentError(absl::StrCat(
      "input ", inputs_.size() - 1, " ('", Short(input.tensor.name), "') has no '", missing, "'")));
}

void InferDecoder::ReadInputMember(JsonReader& json, std::string_view key, Input* input) {
  if (key == "name") {
    ReadName(json, "the name of an input", &input->tensor.name);
  } else if (key == "datatype") {
    std::string_view name;
    if (!json.ReadString(&name)) return;
    const std::optional<Datatype> datatype = ParseDatatype(name);
    if (!datatype) {
      json.Fail(absl::InvalidArgumentError(
          absl::StrCat("there is no datatype '", Short(name), "' (INT64, UINT64, FP32, ...)")));
      return;
    }
    input->has_datatype = true;
    input->tensor.datatype = *datatype;
  } else if (key == "shape") {
    ReadShape(json, input);
  } else if (key == "data") {
    json.SkipValue(&input->data);
  } else if (key == "parameters") {
    std::string_view parameter;
    json.BeginObject();
    while (json.ok() && json.NextMember(&parameter)) {
      if (parameter == "binary_data_size") {
        input->has_binary_size = json.ReadUint64(&input->binary_bytes);
      } else if (parameter.starts_with("shared_memory_")) {
        json.Fail(NoSharedMemory());
      } else {
        json.SkipValue();
      }
    }
  } else {
    json.SkipValue();
  }
}

void InferDecoder::ReadShape(JsonReader& json, Input* input) {
  Shape& shape = input->tensor.shape;
  shape = Shape();
  input->has_shape = true;
  json.BeginArray();
  while (json.ok() && json.NextElement()) {
    if (shape.dim_count == kTensorDimsMax) {
      json.Fail(absl::OutOfRangeError(
          absl::StrCat("a shape has more than ", kTensorDimsMax, " dimensions")));
      return;
    }
    int64_t dim = 0;
    if (!json.ReadInt64(&dim)) return;
    if (dim < 0) {
      json.Fail(absl::InvalidArgumentError(absl::StrCat("input '", Short(input->tensor.name),
                                                        "': dimension ", dim,
                                                        " of its shape is negative")));
      return;
    }
    shape.dims[shape.dim_count++] = dim;
  }
}

void InferDecoder::ReadOutputs(JsonReader& json) {
  ReadTensors(json, outputs_, "outputs", [&] { ReadOutput(json); });
}

void InferDecoder::ReadOutput(JsonReader& json) {
  OutputChoice choice;
  std::optional<bool> binary;
  std::string_view key;
  json.BeginObject();
  while (json.ok() && json.NextMember(&key)) {
    if (key == "name") {
      ReadName(json, "the name of an output", &choice.name);
    } else if (key == "parameters") {
      std::string_view parameter;
      json.BeginObject();
      while (json.ok() && json.NextMember(&parameter)) {
        uint64_t class_count = 0;
        if (parameter == "binary_data") {
          bool value = false;
          if (json.ReadBool(&value)) binary = value;
        } else if (parameter == "classification") {
          if (json.ReadUint64(&class_count) && class_count > 0) {
            json.Fail(absl::UnimplementedError(
                "the classification extension is not supported: outputs are rows"));
          }
        } else if (parameter.starts_with("shared_memory_")) {
          json.Fail(NoSharedMemory());
        } else {
          json.SkipValue();
        }
      }
    } else {
      json.SkipValue();
    }
  }
  if (json.ok() && choice.name.empty()) {
    json.Fail(
        absl::InvalidArgumentError(absl::StrCat("output ", outputs_.size(), " has no 'name'")));
  }
  choice.binary = binary.value_or(false);
  choice.chosen = binary.has_value();
  outputs_.push_back(choice);
}

absl::Status InferDecoder::CheckInputs(size_t tensor_bytes_max, uint64_t* json_bytes) {
  for (Input& input : inputs_) {
    HPS_RETURN_IF_ERROR(CheckInput(input));
    if (input.has_binary_size) continue;
    const size_t element_bytes = DatatypeBytes(input.tensor.datatype);
    *json_bytes += RoundUp(input.element_count * element_bytes, 8);
    if (*json_bytes > tensor_bytes_max) {
      return absl::OutOfRangeError(
          absl::StrCat("the request's tensors are larger than ", tensor_bytes_max, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status InferDecoder::CheckInput(Input& input) {
  const auto name = [&] { return absl::StrCat("input '", Short(input.tensor.name), "': "); };
  uint64_t count = 1;
  for (const int64_t dim : input.tensor.shape.values()) {
    const std::optional<uint64_t> product = CheckedMultiply(count, static_cast<uint64_t>(dim));
    if (!product) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), "its shape has more elements than 64 bits can count"));
    }
    count = *product;
  }
  input.element_count = count;
  const size_t element_bytes = DatatypeBytes(input.tensor.datatype);
  if (input.has_binary_size) {
    if (!input.data.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), "it has both 'data' and 'binary_data_size'"));
    }
    const std::optional<uint64_t> expected = CheckedMultiply(count, element_bytes);
    if (element_bytes != 0 && expected != input.binary_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(name(), "binary_data_size is ",
                                                     input.binary_bytes, ", its shape has ", count,
                                                     " elements of ", element_bytes, " bytes"));
    }
    return absl::OkStatus();
  }
  if (input.data.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name(), "it has neither 'data' nor 'binary_data_size'"));
  }
  if (!HasTextForm(input.tensor.datatype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name(), View(DatatypeName(input.tensor.datatype)),
                     " can't be sent as JSON: send it as binary data"));
  }
  if (count > input.data.size()) {  // also keeps what is taken for it within the body's size
    return absl::InvalidArgumentError(
        absl::StrCat(name(), "its shape has ", count, " elements, its data has fewer"));
  }
  return absl::OkStatus();
}

absl::Status InferDecoder::PlaceBinary(std::span<const std::byte> binary) {
  const size_t given = binary.size();
  for (Input& input : inputs_) {
    if (!input.has_binary_size) continue;
    if (input.binary_bytes > binary.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", Short(input.tensor.name), "': binary_data_size is ", input.binary_bytes,
          ", but of ", given, " bytes after the JSON only ", binary.size(), " are left"));
    }
    input.tensor.bytes = binary.first(input.binary_bytes);
    binary = binary.subspan(input.binary_bytes);
  }
  if (!binary.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(binary.size(), " of ", given, " bytes after the JSON belong to no input"));
  }
  return absl::OkStatus();
}

absl::Status InferDecoder::ParseData(const char* body) {
  std::span<std::byte> rest = tensors_.bytes();
  for (Input& input : inputs_) {
    if (input.has_binary_size) continue;
    const size_t bytes = input.element_count * DatatypeBytes(input.tensor.datatype);
    const absl::Status parsed =
        ParseTensorText(input.data, body, input.tensor.datatype, rest.first(bytes));
    if (!parsed.ok()) {
      return absl::Status(parsed.code(), absl::StrCat("input '", Short(input.tensor.name),
                                                      "': ", parsed.message()));
    }
    input.tensor.bytes = rest.first(bytes);
    rest = rest.subspan(RoundUp(bytes, 8));
  }
  return absl::OkStatus();
}

}  // namespace hps::server
