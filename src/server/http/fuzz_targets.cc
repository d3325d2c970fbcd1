#include "server/http/fuzz_targets.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/macros.h"
#include "server/http/json_infer_request.h"
#include "server/http/request_head.h"
#include "server/http/route.h"
#include "server/net/compression.h"

namespace hps::server {
namespace {

constexpr uint64_t kBodyBytesMax = 1 << 20;

bool IsWithin(std::string_view inner, std::string_view outer) {
  if (inner.empty()) return true;
  const std::less_equal<const char*> before;
  return before(outer.data(), inner.data()) &&
         before(inner.data() + inner.size(), outer.data() + outer.size());
}

void FeedChunks(RequestParser& parser, std::string_view text, size_t step) {
  HttpError error;
  uint64_t body_bytes = 0;
  size_t begin = 0;
  size_t end = 0;
  while (end < text.size()) {
    end = std::min(end + step, text.size());
    for (;;) {
      RequestParser::ChunkStep chunk;
      const std::string_view pending = text.substr(begin, end - begin);
      if (!parser.ParseChunk(pending, kBodyBytesMax, &chunk, &error)) {
        HPS_CHECK(error.code >= 400 && error.code < 600);
        return;
      }
      HPS_CHECK(chunk.consumed <= pending.size());
      HPS_CHECK(IsWithin(chunk.data, pending));
      begin += chunk.consumed;
      body_bytes += chunk.data.size();
      HPS_CHECK(body_bytes <= kBodyBytesMax);
      if (chunk.finished) return;
      if (chunk.needs_more) break;
    }
  }
}

void CheckInputs(const InferenceRequest& request, std::string_view binary) {
  HPS_CHECK(request.inputs.size() <= kInferTensorsMax);
  for (const InputTensor& input : request.inputs) {
    HPS_CHECK(input.shape.dim_count <= kTensorDimsMax);
    uint64_t bytes = DatatypeBytes(input.datatype);
    for (const int64_t dim : input.shape.values()) bytes *= static_cast<uint64_t>(dim);
    HPS_CHECK(input.datatype == Datatype::kBytes || bytes == input.bytes.size());
    // Read every byte, so that a sanitizer sees a view of what is not there.
    uint64_t sum = 0;
    for (const std::byte byte : input.bytes) sum += static_cast<uint64_t>(byte);
    HPS_CHECK(sum <= input.bytes.size() * 255);
  }
  HPS_CHECK(binary.size() <= kBodyBytesMax);
}

void Decode(std::string json, const std::string& binary) {
  BufferPool pool({.lent_bytes_max = 16 * kBodyBytesMax});
  InferDecoder decoder;
  for (int round = 0; round < 2; ++round) {  // a decoder is used again
    std::string copy = json;
    InferenceRequest request;
    decoder.Reset();
    const absl::Status status =
        decoder.Decode({.json = std::span<char>(copy), .binary = AsBytes(std::string_view(binary))},
                       pool, kBodyBytesMax, &request);
    if (status.ok()) CheckInputs(request, binary);
    HPS_CHECK(status.code() != absl::StatusCode::kInternal);
  }
}

}  // namespace

void FuzzHttpRequest(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t step = std::max<size_t>(1, static_cast<size_t>(bytes[0]));
  std::string text(AsText(bytes.subspan(1)));
  HeadEnd head_end;
  HttpError error;
  error.code = 0;
  std::optional<size_t> head_bytes;
  for (size_t end = 0; end < text.size() && !head_bytes && error.code == 0;) {
    end = std::min(end + step, text.size());
    head_bytes = head_end.Find(std::string_view(text).substr(0, end), &error);
  }
  HPS_CHECK(!head_bytes || *head_bytes <= std::min(text.size(), kHeadBytesMax));
  if (!head_bytes) return;
  RequestParser parser;
  RequestHead head;
  const std::string_view head_text = std::string_view(text).substr(0, *head_bytes);
  if (!parser.ParseHead(std::span(text).first(*head_bytes), &head, &error)) {
    HPS_CHECK(error.code >= 400 && error.code < 600 && !error.message.empty());
    return;
  }
  HPS_CHECK(IsWithin(head.path, head_text) || head.path == "/");
  HPS_CHECK(IsWithin(head.query, head_text) && IsWithin(head.authorization, head_text));
  HPS_CHECK(IsWithin(head.host, head_text) && head.query.size() <= kTargetBytesMax);
  HPS_CHECK(!head.chunked || head.content_length == 0);
  const Route route = FindRoute(head.path);
  HPS_CHECK(IsWithin(route.model, head_text) && IsWithin(route.version, head_text));
  if (head.chunked) FeedChunks(parser, std::string_view(text).substr(*head_bytes), step);
}

void FuzzV2Json(std::span<const std::byte> bytes) {
  if (bytes.size() <= kBodyBytesMax) Decode(std::string(AsText(bytes)), "");
}

void FuzzBinaryTensor(std::span<const std::byte> bytes) {
  if (bytes.size() < 2 || bytes.size() > kBodyBytesMax) return;
  const std::string_view rest = AsText(bytes.subspan(2));
  const size_t json_bytes = std::min<size_t>(LoadLittleEndian<uint16_t>(bytes.data()), rest.size());
  Decode(std::string(rest.substr(0, json_bytes)), std::string(rest.substr(json_bytes)));
}

// What unpacks at all packs again to something that unpacks to the same; nothing is larger than it
// may be, and the pool gets everything back.
void FuzzInflate(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() > kBodyBytesMax) return;
  const Coding coding =
      (bytes[0] & std::byte{1}) == std::byte{0} ? Coding::kGzip : Coding::kDeflate;
  const GzipMembers members =
      (bytes[0] & std::byte{2}) == std::byte{0} ? GzipMembers::kMany : GzipMembers::kOne;
  BufferPool pool({.lent_bytes_max = 16 * kBodyBytesMax});
  {
    const auto body = Inflate(coding, bytes.subspan(1), kBodyBytesMax, members, pool);
    if (body.ok()) {
      HPS_CHECK(body->size <= kBodyBytesMax);
      const std::span<const std::byte> plain = body->bytes();
      const auto packed = Deflate(coding, {&plain, 1}, 2 * kBodyBytesMax, pool);
      HPS_CHECK(packed.ok());
      const auto again = Inflate(coding, packed->bytes(), kBodyBytesMax, GzipMembers::kOne, pool);
      HPS_CHECK(again.ok() && again->size == body->size);
      HPS_CHECK(std::equal(plain.begin(), plain.end(), again->memory.bytes().begin()));
    } else {
      HPS_CHECK(absl::IsInvalidArgument(body.status()) || absl::IsOutOfRange(body.status()));
    }
  }
  HPS_CHECK(pool.lent_bytes() == 0);
}

}  // namespace hps::server
