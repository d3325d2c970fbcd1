#include "server/grpc_codec/fuzz_target.h"

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "server/grpc_codec/proto_infer_request.h"

namespace hps::server {
namespace {

bool IsRefusal(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kOutOfRange ||
         code == absl::StatusCode::kUnimplemented;
}

// Reads every byte, so that a sanitizer sees a view of what is not there.
void CheckViews(const InferenceRequest& request) {
  uint64_t sum = 0;
  uint64_t bytes_total = 0;
  const auto read = [&](std::string_view text) {
    for (const char c : text) sum += static_cast<unsigned char>(c);
    bytes_total += text.size();
  };
  read(request.model);
  read(request.version);
  read(request.id);
  for (const InputTensor& input : request.inputs) {
    HPS_CHECK(input.shape.dim_count <= kTensorDimsMax);
    for (const int64_t dim : input.shape.values()) HPS_CHECK(dim >= 0);
    read(input.name);
    read(AsText(input.bytes));
  }
  for (const std::string_view name : request.output_names) read(name);
  HPS_CHECK(sum <= bytes_total * 255);
}

}  // namespace

bool FuzzGrpcInfer(std::span<const std::byte> message) {
  // Memory of exactly the message's size: what is read beyond it is seen.
  const std::vector<std::byte> exact(message.begin(), message.end());
  InferRequestCodec codec;
  bool was_read = false;
  for (int round = 0; round < 2; ++round) {  // a codec is used again
    InferenceRequest request;
    const absl::Status status = codec.Parse(exact, UINT64_MAX, &request);
    HPS_CHECK(status.ok() || IsRefusal(status.code()));
    HPS_CHECK(round == 0 || status.ok() == was_read);
    was_read = status.ok();
    HPS_CHECK(request.inputs.size() <= kTensorsPerRequestMax);
    HPS_CHECK(request.output_names.size() <= kTensorsPerRequestMax);
    if (was_read) CheckViews(request);
  }
  return was_read;
}

}  // namespace hps::server
