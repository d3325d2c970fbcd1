#include "server/grpc_codec/proto_infer_request.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "server/grpc_codec/wire_format.h"

namespace hps::server {
namespace {

// Field numbers of the protocol's messages.
enum RequestField : uint32_t {
  kModelName = 1,
  kModelVersion = 2,
  kId = 3,
  kParameters = 4,
  kInputs = 5,
  kOutputs = 6,
  kRawContents = 7,
};
enum InputField : uint32_t {
  kInputName = 1,
  kInputDatatype = 2,
  kInputShape = 3,
  kInputParameters = 4,
  kInputContents = 5,
};
enum OutputField : uint32_t { kOutputName = 1, kOutputParameters = 2 };
enum MapField : uint32_t { kMapKey = 1, kMapValue = 2 };
enum ValueField : uint32_t { kBoolValue = 1, kInt64Value = 2, kUint64Value = 5 };

// The field of InferTensorContents that holds elements of each datatype; 0 = none does.
constexpr std::array<uint32_t, kDatatypeNames.size()> kContentsFields = {1, 4, 4, 4, 5, 2, 2,
                                                                         2, 3, 0, 0, 6, 7, 0};

constexpr auto kTimeoutMax = std::chrono::hours(24 * 365);
// Fields that tell who asks and for how long are among so many, with those of parameters; more are
// looked at in their turn.
constexpr size_t kHeadFieldsMax = 4096;
// What a message may leave behind for the next one: there are thousands of these objects, and what
// they keep is not in the account of the requests.
constexpr size_t kKeptBytesMax = size_t{16} << 10;
// As many as the keys of the largest call: a message of one-byte numbers must not grow eightfold.
constexpr size_t kUnpackedBytesMax = kKeysPerCallMax * sizeof(uint64_t);

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Malformed(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": these bytes are not such a message"));
}

absl::Status OverLimit(const char* what, size_t max) {
  return absl::OutOfRangeError(absl::StrCat("a request has at most ", max, " ", what));
}

absl::Status CheckText(const char* what, std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return absl::OutOfRangeError(
        absl::StrCat("the ", what, " has ", text.size(), " bytes, the limit is ", bytes_max));
  }
  const bool is_plain = std::all_of(text.begin(), text.end(),
                                    [](char letter) { return letter >= ' ' && letter <= '~'; });
  if (!is_plain && PrintableText(text) != text) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", what, " is not printable UTF-8: '", PrintableText(text), "'"));
  }
  return absl::OkStatus();
}

// Reads a text field. One that is refused is not given: errors of a stream echo names, and the
// client's parser takes no message whose text is not UTF-8.
absl::Status TakeText(WireReader& reader, WireType type, const char* what, std::string_view* text) {
  std::string_view taken;
  if (type != WireType::kBytes || !reader.ReadText(&taken)) return Malformed(what);
  HPS_RETURN_IF_ERROR(CheckText(what, taken, kProtocolNameBytesMax));
  *text = taken;
  return absl::OkStatus();
}

absl::Status AddDim(uint64_t value, Shape* shape) {
  const auto dim = static_cast<int64_t>(value);
  if (dim < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a dimension of ", dim, " is negative"));
  }
  if (shape->dim_count == kTensorDimsMax) return OverLimit("dimensions in a shape", kTensorDimsMax);
  shape->dims[shape->dim_count++] = dim;
  return absl::OkStatus();
}

absl::Status TakeShape(WireReader& reader, WireType type, Shape* shape) {
  uint64_t dim = 0;
  if (type == WireType::kVarint) {
    if (!reader.ReadVarint(&dim)) return Malformed("shape");
    return AddDim(dim, shape);
  }
  std::span<const std::byte> packed;
  if (type != WireType::kBytes || !reader.ReadBytes(&packed)) return Malformed("shape");
  WireReader dims(packed);
  while (!dims.empty()) {
    if (!dims.ReadVarint(&dim)) return Malformed("shape");
    HPS_RETURN_IF_ERROR(AddDim(dim, shape));
  }
  return absl::OkStatus();
}

// One entry of a map<string, InferParameter>.
struct Parameter {
  std::string_view name;
  bool is_number = false;
  uint64_t number = 0;  // also of a bool
};

absl::Status ReadParameterValue(WireReader reader, Parameter* parameter) {
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    if (field == kBoolValue || field == kInt64Value || field == kUint64Value) {
      if (type != WireType::kVarint || !reader.ReadVarint(&parameter->number)) {
        return Malformed("parameter");
      }
      parameter->is_number = true;
    } else {
      reader.Skip(type);
      parameter->is_number = false;
    }
  }
  return reader.malformed() ? Malformed("parameter") : absl::OkStatus();
}

// `fields_left`: WireReader's.
absl::Status ReadParameter(std::span<const std::byte> bytes, size_t* fields_left,
                           Parameter* parameter) {
  WireReader reader(bytes, fields_left);
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    if (field == kMapKey) {
      HPS_RETURN_IF_ERROR(TakeText(reader, type, "name of a parameter", &parameter->name));
    } else if (field == kMapValue) {
      std::span<const std::byte> value;
      if (type != WireType::kBytes || !reader.ReadBytes(&value)) return Malformed("parameter");
      HPS_RETURN_IF_ERROR(ReadParameterValue(WireReader(value, fields_left), parameter));
    } else {
      reader.Skip(type);
    }
  }
  return reader.malformed() ? Malformed("parameter") : absl::OkStatus();
}

// Fills in the request's time-out, where the parameter is that.
absl::Status TakeTimeout(const Parameter& parameter, InferenceRequest* request) {
  if (parameter.name != "timeout") return absl::OkStatus();
  const auto timeout_us = static_cast<int64_t>(parameter.number);
  if (!parameter.is_number || timeout_us < 0) {
    return absl::InvalidArgumentError("the parameter 'timeout' must be a number of microseconds");
  }
  constexpr auto kMax = std::chrono::duration_cast<std::chrono::microseconds>(kTimeoutMax);
  request->timeout = std::min(std::chrono::microseconds(timeout_us), kMax);
  return absl::OkStatus();
}

// Reads one parameter of a tensor and refuses those that ask for what hps does not do.
absl::Status CheckTensorParameter(WireReader& reader, WireType type) {
  std::span<const std::byte> bytes;
  if (type != WireType::kBytes || !reader.ReadBytes(&bytes)) return Malformed("parameter");
  Parameter parameter;
  HPS_RETURN_IF_ERROR(ReadParameter(bytes, nullptr, &parameter));
  if (parameter.name == "classification") {
    return absl::UnimplementedError("the classification extension is not supported");
  }
  if (parameter.name.starts_with("shared_memory_")) {
    return absl::UnimplementedError(
        "shared memory is not supported: send tensors with the request");
  }
  return absl::OkStatus();
}

// How one element comes when it is not packed with others.
WireType ElementWireType(Datatype datatype) {
  if (datatype == Datatype::kFp32) return WireType::kFixed32;
  return datatype == Datatype::kFp64 ? WireType::kFixed64 : WireType::kVarint;
}

// Whether a number as the wire has it is one of the datatype's.
bool Fits(uint64_t number, Datatype datatype) {
  const size_t bits = 8 * DatatypeBytes(datatype);
  if (bits == 64) return true;
  if (datatype == Datatype::kInt8 || datatype == Datatype::kInt16 || datatype == Datatype::kInt32) {
    const auto value = static_cast<int64_t>(number);
    const int64_t limit = int64_t{1} << (bits - 1);
    return value >= -limit && value < limit;
  }
  if (datatype == Datatype::kBool) return number <= 1;
  return number >> bits == 0;
}

}  // namespace

absl::Status InferRequestCodec::Parse(std::span<const std::byte> message,
                                      uint64_t unpacked_bytes_max, InferenceRequest* request) {
  unpacked_bytes_max_ = std::min<uint64_t>(unpacked_bytes_max, kUnpackedBytesMax);
  raw_.clear();
  unpacked_.clear();
  unpacked_bytes_.clear();
  wants_final_mark_ = false;
  HPS_RETURN_IF_ERROR(ParseFields(message, request));
  return ConnectBytes(request);
}

void InferRequestCodec::ParseHead(std::span<const std::byte> message, InferenceRequest* request) {
  size_t fields_left = kHeadFieldsMax;
  WireReader reader(message, &fields_left);
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    std::span<const std::byte> bytes;
    Parameter parameter;
    if (field == kModelName) {
      TakeText(reader, type, "model name", &request->model).IgnoreError();
    } else if (field == kId) {
      TakeText(reader, type, "request id", &request->id).IgnoreError();
    } else if (field != kParameters || type != WireType::kBytes) {
      reader.Skip(type);
    } else if (reader.ReadBytes(&bytes) && ReadParameter(bytes, &fields_left, &parameter).ok()) {
      // One that was not read to its end may say something else there.
      if (fields_left > 0) TakeTimeout(parameter, request).IgnoreError();
    }
  }
}

void InferRequestCodec::Trim() {
  if (unpacked_bytes_.capacity() > kKeptBytesMax) std::vector<std::byte>().swap(unpacked_bytes_);
}

absl::Status InferRequestCodec::ParseFields(std::span<const std::byte> message,
                                            InferenceRequest* request) {
  WireReader reader(message);
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    std::span<const std::byte> bytes;
    const bool is_part = field >= kParameters && field <= kRawContents;
    if (is_part && (type != WireType::kBytes || !reader.ReadBytes(&bytes))) {
      return Malformed("ModelInferRequest");
    }
    absl::Status status;
    switch (field) {
      case kModelName:
        status = TakeText(reader, type, "model name", &request->model);
        break;
      case kModelVersion:
        status = TakeText(reader, type, "model version", &request->version);
        break;
      case kId:
        status = TakeText(reader, type, "request id", &request->id);
        break;
      case kParameters:
        status = ParseParameter(bytes, request);
        break;
      case kInputs:
        status = ParseInput(bytes, request);
        break;
      case kOutputs:
        status = ParseOutput(bytes, request);
        break;
      case kRawContents:
        if (raw_.size() == kTensorsPerRequestMax) {
          return OverLimit("raw contents", kTensorsPerRequestMax);
        }
        raw_.push_back(bytes);
        break;
      default:
        reader.Skip(type);
    }
    HPS_RETURN_IF_ERROR(status);
  }
  return reader.malformed() ? Malformed("ModelInferRequest") : absl::OkStatus();
}

absl::Status InferRequestCodec::ParseParameter(std::span<const std::byte> bytes,
                                               InferenceRequest* request) {
  Parameter parameter;
  HPS_RETURN_IF_ERROR(ReadParameter(bytes, nullptr, &parameter));
  if (parameter.name == "triton_enable_empty_final_response") {
    wants_final_mark_ = parameter.number != 0;
  }
  return TakeTimeout(parameter, request);
}

absl::Status InferRequestCodec::ParseInput(std::span<const std::byte> bytes,
                                           InferenceRequest* request) {
  if (request->inputs.size() == kTensorsPerRequestMax) {
    return OverLimit("inputs", kTensorsPerRequestMax);
  }
  InputTensor& input = request->inputs.emplace_back();
  WireReader reader(bytes);
  uint32_t field = 0;
  WireType type{};
  std::string_view datatype;
  bool has_contents = false;
  while (reader.Next(&field, &type)) {
    absl::Status status;
    if (field == kInputName) {
      status = TakeText(reader, type, "name of an input", &input.name);
    } else if (field == kInputDatatype) {
      status = TakeText(reader, type, "datatype of an input", &datatype);
    } else if (field == kInputShape) {
      status = TakeShape(reader, type, &input.shape);
    } else if (field == kInputParameters) {
      status = CheckTensorParameter(reader, type);
    } else {
      has_contents |= field == kInputContents;
      reader.Skip(type);
    }
    HPS_RETURN_IF_ERROR(status);
  }
  if (reader.malformed()) return Malformed("input");
  const std::optional<Datatype> known = ParseDatatype(datatype);
  if (!known.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("input '", Text(input.name), "': there is no ",
                                                   "datatype '", Text(datatype), "'"));
  }
  input.datatype = *known;
  if (!has_contents) return absl::OkStatus();
  // Contents can only be read when the datatype is known, and fields come in any order.
  const size_t index = request->inputs.size() - 1;
  unpacked_.push_back({index, unpacked_bytes_.size(), unpacked_bytes_.size()});
  WireReader again(bytes);
  while (again.Next(&field, &type)) {
    std::span<const std::byte> contents;
    if (field != kInputContents) {
      again.Skip(type);
    } else if (type != WireType::kBytes || !again.ReadBytes(&contents)) {
      return Malformed("contents");
    } else {
      HPS_RETURN_IF_ERROR(UnpackContents(contents, input));
    }
  }
  return absl::OkStatus();
}

absl::Status InferRequestCodec::ParseOutput(std::span<const std::byte> bytes,
                                            InferenceRequest* request) {
  if (request->output_names.size() == kTensorsPerRequestMax) {
    return OverLimit("outputs", kTensorsPerRequestMax);
  }
  std::string_view& name = request->output_names.emplace_back();
  WireReader reader(bytes);
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    absl::Status status;
    if (field == kOutputName) {
      status = TakeText(reader, type, "name of an output", &name);
    } else if (field == kOutputParameters) {
      status = CheckTensorParameter(reader, type);
    } else {
      reader.Skip(type);
    }
    HPS_RETURN_IF_ERROR(status);
  }
  return reader.malformed() ? Malformed("output") : absl::OkStatus();
}

absl::Status InferRequestCodec::UnpackContents(std::span<const std::byte> contents,
                                               const InputTensor& input) {
  const uint32_t wanted = kContentsFields[static_cast<size_t>(input.datatype)];
  if (wanted == 0) {
    const bool is_bytes = input.datatype == Datatype::kBytes;
    return absl::InvalidArgumentError(
        absl::StrCat("input '", Text(input.name),
                     "': ", is_bytes ? "keys are integers of 32 or 64 bits, not " : "send ",
                     Text(DatatypeName(input.datatype)), is_bytes ? "" : " in raw_input_contents"));
  }
  const WireType single = ElementWireType(input.datatype);
  WireReader reader(contents);
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    if (field != wanted || (type != WireType::kBytes && type != single)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", Text(input.name), "': its contents are of another datatype than ",
                       Text(DatatypeName(input.datatype))));
    }
    std::span<const std::byte> packed;
    uint64_t number = 0;
    if (type == WireType::kBytes) {
      if (reader.ReadBytes(&packed)) HPS_RETURN_IF_ERROR(AppendPacked(packed, input));
    } else if (type == WireType::kVarint) {
      if (reader.ReadVarint(&number)) HPS_RETURN_IF_ERROR(AppendNumber(number, input));
    } else if (reader.ReadFixed(DatatypeBytes(input.datatype), &packed)) {
      HPS_RETURN_IF_ERROR(AppendPacked(packed, input));
    }
  }
  if (reader.malformed()) return Malformed("contents");
  unpacked_.back().end = unpacked_bytes_.size();
  return absl::OkStatus();
}

absl::Status InferRequestCodec::AppendPacked(std::span<const std::byte> packed,
                                             const InputTensor& input) {
  if (ElementWireType(input.datatype) == WireType::kVarint) {
    WireReader numbers(packed);
    uint64_t number = 0;
    while (!numbers.empty()) {
      if (!numbers.ReadVarint(&number)) return Malformed("contents");
      HPS_RETURN_IF_ERROR(AppendNumber(number, input));
    }
    return absl::OkStatus();
  }
  if (packed.size() % DatatypeBytes(input.datatype) != 0) return Malformed("contents");
  HPS_RETURN_IF_ERROR(CheckUnpacked(packed.size(), input));
  unpacked_bytes_.insert(unpacked_bytes_.end(), packed.begin(), packed.end());
  return absl::OkStatus();
}

absl::Status InferRequestCodec::AppendNumber(uint64_t number, const InputTensor& input) {
  if (!Fits(number, input.datatype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input '", Text(input.name), "': a number is no ", Text(DatatypeName(input.datatype))));
  }
  const size_t element_bytes = DatatypeBytes(input.datatype);
  HPS_RETURN_IF_ERROR(CheckUnpacked(element_bytes, input));
  const size_t at = unpacked_bytes_.size();
  unpacked_bytes_.resize(at + element_bytes);
  std::memcpy(&unpacked_bytes_[at], &number, element_bytes);  // little-endian
  return absl::OkStatus();
}

absl::Status InferRequestCodec::CheckUnpacked(size_t more_bytes, const InputTensor& input) const {
  if (unpacked_bytes_.size() + more_bytes <= unpacked_bytes_max_) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("input '", Text(input.name), "': typed contents have ",
                                            "at most ", unpacked_bytes_max_,
                                            " bytes in a request"));
}

absl::Status InferRequestCodec::ConnectBytes(InferenceRequest* request) {
  if (raw_.empty()) {
    for (const Unpacked& part : unpacked_) {
      request->inputs[part.input].bytes =
          std::span(unpacked_bytes_).subspan(part.begin, part.end - part.begin);
    }
    return absl::OkStatus();
  }
  if (!unpacked_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", Text(request->inputs[unpacked_.front().input].name),
                     "' has contents of its own, and the request has raw_input_contents"));
  }
  if (raw_.size() != request->inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("raw_input_contents has ", raw_.size(),
                                                   " entries for ", request->inputs.size(),
                                                   " inputs"));
  }
  for (size_t i = 0; i < raw_.size(); ++i) request->inputs[i].bytes = raw_[i];
  return absl::OkStatus();
}

}  // namespace hps::server
