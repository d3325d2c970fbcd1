#include "server/http/json_infer_response.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "server/http/tensor_text.h"

namespace hps::server {
namespace {

// Elements of an output are written in pieces, between which the size of the text is checked.
constexpr size_t kPieceBytes = size_t{1} << 20;
// Of the JSON around elements: of the answer, of an output with its shape.
constexpr uint64_t kFrameBytes = 320;
constexpr uint64_t kEscapedBytesMax = 6;
// Of one byte of an element as text: "255," of UINT8.
constexpr uint64_t kElementTextMax = 4;

// Of one element with its comma: "-3.4028235e+38," of FP32.
uint64_t ElementTextMax(Datatype datatype) {
  switch (datatype) {
    case Datatype::kFp32:
      return 16;
    case Datatype::kBool:
      return 6;
    case Datatype::kFp64:
      return 26;
    default:
      return kElementTextMax * DatatypeBytes(datatype);
  }
}

absl::Status WriteElements(const OutputTensor& output, NonFinite non_finite, uint64_t bytes_max,
                           std::string* out) {
  const std::span<const std::byte> elements(output.data, output.byte_count);
  // Each piece is written as an array of its own; then a comma joins it to the one before.
  size_t begin = 0;
  do {
    const size_t open_at = out->size();
    JsonWriter json(out, non_finite);
    WriteTensorText(elements.subspan(begin, std::min(kPieceBytes, elements.size() - begin)),
                    output.datatype, json);
    if (begin > 0) (*out)[open_at] = ',';
    out->pop_back();
    if (out->size() > bytes_max) {
      return absl::OutOfRangeError(
          absl::StrCat("the answer as JSON is larger than ", bytes_max,
                       " bytes: ask for binary outputs, or for fewer keys"));
    }
    begin += kPieceBytes;
  } while (begin < elements.size());
  out->push_back(']');
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeAnswer(const InferenceCall& call, const InferDecoder& choices,
                          uint64_t bytes_max, std::string* out, uint64_t* binary_bytes) {
  *binary_bytes = 0;
  JsonWriter json(out);
  json.BeginObject();
  if (!call.request.id.empty()) json.Member("id", call.request.id);
  json.Member("model_name", call.request.model);
  json.Member("model_version", call.model_version);
  json.Name("outputs");
  json.BeginArray();
  for (const OutputTensor& output : call.outputs) {
    json.BeginObject();
    json.Member("name", output.name);
    json.Member("datatype", DatatypeName(output.datatype));
    json.Name("shape");
    json.BeginArray();
    for (const int64_t dim : output.shape.values()) json.Value(dim);
    json.EndArray();
    if (choices.wants_binary(output.name)) {
      json.Name("parameters");
      json.BeginObject();
      json.Member("binary_data_size", output.byte_count);
      json.EndObject();
      *binary_bytes += output.byte_count;
    } else if (HasTextForm(output.datatype)) {
      json.Name("data");
      HPS_RETURN_IF_ERROR(WriteElements(output, choices.non_finite(), bytes_max, out));
    } else {
      return absl::InvalidArgumentError("an output can't be sent as JSON: ask for binary data");
    }
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return absl::OkStatus();
}

uint64_t AnswerTextMax(const InferenceCall& call, const InferDecoder& choices, uint64_t bytes_max) {
  // Names and ids may be escaped, a control character as six bytes.
  uint64_t frame_bytes =
      kFrameBytes + kEscapedBytesMax * (call.request.id.size() + call.request.model.size());
  uint64_t element_bytes = 0;
  for (const OutputTensor& output : call.outputs) {
    frame_bytes += kFrameBytes + kEscapedBytesMax * output.name.size();
    if (choices.wants_binary(output.name)) continue;
    element_bytes += output.byte_count / std::max<size_t>(DatatypeBytes(output.datatype), 1) *
                     ElementTextMax(output.datatype);
  }
  return frame_bytes + std::min(element_bytes, bytes_max + kPieceBytes * kElementTextMax);
}

}  // namespace hps::server
