#include "server/grpc_codec/proto_infer_response.h"

#include <cstring>

#include "base/bytes.h"
#include "base/macros.h"
#include "server/grpc_codec/wire_format.h"

namespace hps::server {
namespace {

// Field numbers of the protocol's messages.
enum ResponseField : uint32_t {
  kModelName = 1,
  kModelVersion = 2,
  kId = 3,
  kParameters = 4,
  kOutputs = 5,
  kRawContents = 6,
};
enum OutputField : uint32_t { kName = 1, kDatatype = 2, kShape = 3 };
enum StreamField : uint32_t { kErrorMessage = 1, kInferResponse = 2 };

constexpr size_t kAlignment = 64;

// parameters: {key: "triton_final_response", value: {bool_param: true}}
constexpr std::string_view kFinalMark = "\x0a\x15triton_final_response\x12\x02\x08\x01";

void AppendOutput(const OutputTensor& output, std::string* part, std::string* message) {
  part->clear();
  AppendText(kName, output.name, part);
  AppendText(kDatatype, DatatypeName(output.datatype), part);
  size_t shape_bytes = 0;
  for (const int64_t dim : output.shape.values()) {
    shape_bytes += VarintBytes(static_cast<uint64_t>(dim));
  }
  AppendLength(kShape, shape_bytes, part);
  for (const int64_t dim : output.shape.values()) AppendVarint(static_cast<uint64_t>(dim), part);
  AppendText(kOutputs, *part, message);
}

}  // namespace

void InferResponseCodec::AppendMessageHead(const InferenceCall& call, const Options& options) {
  AppendText(kModelName, call.request.model, &head_);
  AppendText(kModelVersion, call.model_version, &head_);
  if (!call.request.id.empty()) AppendText(kId, call.request.id, &head_);
  if (options.final_mark) AppendText(kParameters, kFinalMark, &head_);
  for (const OutputTensor& output : call.outputs) AppendOutput(output, &part_, &head_);
}

size_t InferResponseCodec::Plan(const InferenceCall& call, const Options& options) {
  head_.clear();
  AppendMessageHead(call, options);
  separators_.resize(call.outputs.size());
  size_t message_bytes = head_.size();
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    separators_[i].clear();
    AppendLength(kRawContents, call.outputs[i].byte_count, &separators_[i]);
    message_bytes += separators_[i].size() + call.outputs[i].byte_count;
  }
  if (!separators_.empty()) head_ += separators_.front();
  if (options.in_stream) {
    part_.clear();
    AppendLength(kInferResponse, message_bytes, &part_);
    head_.insert(0, part_);
  }
  size_t buffer_bytes = RoundUp(head_.size(), kAlignment);
  for (const OutputTensor& output : call.outputs) {
    buffer_bytes = RoundUp(buffer_bytes + output.byte_count + kAlignment, kAlignment);
  }
  return buffer_bytes;
}

void InferResponseCodec::Place(std::byte* buffer, InferenceCall* call) {
  pieces_.clear();
  size_t data = RoundUp(head_.size(), kAlignment);
  size_t begin = data - head_.size();
  std::memcpy(buffer + begin, head_.data(), head_.size());
  if (call->outputs.empty()) pieces_.emplace_back(buffer + begin, head_.size());
  for (size_t i = 0; i < call->outputs.size(); ++i) {
    OutputTensor& output = call->outputs[i];
    output.data = buffer + data;
    size_t end = data + output.byte_count;
    if (i + 1 < call->outputs.size()) {
      const std::string& separator = separators_[i + 1];
      HPS_DCHECK(separator.size() <= kAlignment);
      std::memcpy(buffer + end, separator.data(), separator.size());
      end += separator.size();
    }
    pieces_.emplace_back(buffer + begin, end - begin);
    data = RoundUp(end, kAlignment);
    begin = data;
  }
}

std::string StreamErrorMessage(std::string_view message, std::string_view model,
                               std::string_view id) {
  std::string response;
  AppendText(kModelName, model, &response);
  if (!id.empty()) AppendText(kId, id, &response);
  std::string out;
  AppendText(kErrorMessage, message, &out);
  AppendText(kInferResponse, response, &out);
  return out;
}

}  // namespace hps::server
