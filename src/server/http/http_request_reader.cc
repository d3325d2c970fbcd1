#include "server/http/http_request_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"

namespace hps::server {
namespace {

// Holds every head, and most requests whole: 1,024 keys are 8 KiB.
constexpr size_t kInputBytes = 32 << 10;
static_assert(kInputBytes > kHeadBytesMax);
// A larger body gets a buffer of this size at first, and of this many times its bytes later.
constexpr size_t kBodyFirstBytes = 256 << 10;
constexpr size_t kBodyGrowth = 4;

}  // namespace

void HttpRequestReader::BeginRequest() {
  const size_t rest = input_size_ - body_end_;
  if (rest > 0 && body_end_ > 0) {
    std::memmove(input_.bytes().data(), input_.bytes().data() + body_end_, rest);
  }
  input_size_ = rest;
  phase_ = Phase::kHead;
  head_bytes_ = body_end_ = body_size_ = 0;
  skipped_line_ = false;
  head_end_.Reset();
  head_ = RequestHead();
}

absl::StatusOr<std::span<std::byte>> HttpRequestReader::Room() {
  if (phase_ == Phase::kOwnBody) {
    if (body_size_ == body_.bytes().size()) HPS_RETURN_IF_ERROR(TakeBodyRoom(body_size_ + 1));
    const size_t wanted = head_.content_length - body_size_;
    return body_.bytes().subspan(body_size_, std::min(wanted, body_.bytes().size() - body_size_));
  }
  if (input_.empty()) {
    HPS_ASSIGN_OR_RETURN(input_, pool_.Acquire(kInputBytes, BufferPool::Use::kRequest));
  }
  return input_.bytes().subspan(input_size_);
}

void HttpRequestReader::Received(size_t bytes) {
  (phase_ == Phase::kOwnBody ? body_size_ : input_size_) += bytes;
}

HttpRequestReader::Parsed HttpRequestReader::Parse() {
  switch (phase_) {
    case Phase::kHead:
      return ParseHead();
    case Phase::kInputBody:
      return {.step = input_size_ >= body_end_ ? Step::kComplete : Step::kNeedsMore};
    case Phase::kOwnBody:
      return {.step = body_size_ >= head_.content_length ? Step::kComplete : Step::kNeedsMore};
    case Phase::kChunks:
      return ParseChunks();
  }
  return {};
}

HttpRequestReader::Parsed HttpRequestReader::ParseHead() {
  const std::span<char> bytes(AsChars(input_.bytes().data()), input_size_);
  const std::string_view text(bytes.data(), bytes.size());
  // Some clients send one empty line too many behind a body.
  if (text.starts_with("\r\n") && !std::exchange(skipped_line_, true)) {
    input_size_ -= 2;
    std::memmove(input_.bytes().data(), input_.bytes().data() + 2, input_size_);
    head_end_.Reset();
    return {.step = Step::kAgain};
  }
  Parsed parsed{.step = Step::kRefused, .error = {.code = 0}};
  const std::optional<size_t> head_bytes = head_end_.Find(text, &parsed.error);
  if (!head_bytes && parsed.error.code == 0) return {.step = Step::kNeedsMore};
  if (!head_bytes || !parser_.ParseHead(bytes.first(*head_bytes), &head_, &parsed.error)) {
    return parsed;
  }
  head_bytes_ = body_end_ = *head_bytes;
  return {.step = Step::kHead};
}

absl::Status HttpRequestReader::BeginBody(uint64_t body_bytes_max) {
  body_bytes_max_ = body_bytes_max;
  if (head_.chunked) {
    phase_ = Phase::kChunks;
    return absl::OkStatus();
  }
  if (body_fits()) {
    phase_ = Phase::kInputBody;
    body_end_ = head_bytes_ + head_.content_length;
    return absl::OkStatus();
  }
  phase_ = Phase::kOwnBody;
  const size_t early = early_body_bytes();
  HPS_RETURN_IF_ERROR(
      TakeBodyRoom(std::max(early, std::min<size_t>(head_.content_length, kBodyFirstBytes))));
  std::memcpy(body_.bytes().data(), input_.bytes().data() + head_bytes_, early);
  body_size_ = early;
  input_size_ = head_bytes_;
  return absl::OkStatus();
}

// Room for `bytes` of the body, and for more of it that may follow.
absl::Status HttpRequestReader::TakeBodyRoom(size_t bytes) {
  if (bytes <= body_.bytes().size()) return absl::OkStatus();
  const uint64_t limit = head_.chunked ? body_bytes_max_ : head_.content_length;
  const size_t wanted = std::min<uint64_t>(std::max(bytes, body_size_ * kBodyGrowth), limit);
  HPS_ASSIGN_OR_RETURN(BufferPool::Lease lease,
                       pool_.Acquire(std::max(wanted, bytes), BufferPool::Use::kRequest));
  if (body_size_ > 0) std::memcpy(lease.bytes().data(), body_.bytes().data(), body_size_);
  body_ = std::move(lease);
  return absl::OkStatus();
}

HttpRequestReader::Parsed HttpRequestReader::ParseChunks() {
  size_t consumed = head_bytes_;
  for (;;) {
    const std::string_view text = AsText(input_.bytes().subspan(consumed, input_size_ - consumed));
    RequestParser::ChunkStep step;
    Parsed parsed{.step = Step::kRefused};
    if (!parser_.ParseChunk(text, body_bytes_max_, &step, &parsed.error)) return parsed;
    if (!step.data.empty()) {
      absl::Status room = TakeBodyRoom(body_size_ + step.data.size());
      if (!room.ok()) return {.step = Step::kNoRoom, .no_room = std::move(room)};
      std::memcpy(body_.bytes().data() + body_size_, step.data.data(), step.data.size());
      body_size_ += step.data.size();
    }
    consumed += step.consumed;
    if (step.finished) {
      body_end_ = consumed;
      return {.step = Step::kComplete};
    }
    if (step.needs_more) break;
  }
  // What is not parsed yet moves to behind the head.
  std::memmove(input_.bytes().data() + head_bytes_, input_.bytes().data() + consumed,
               input_size_ - consumed);
  input_size_ -= consumed - head_bytes_;
  if (input_size_ < input_.bytes().size()) return {.step = Step::kNeedsMore};
  return {.step = Step::kRefused,
          .error = {.code = 400,
                    .message = "the head of a chunk is too large",
                    .reason = BadRequestReason::kLimit,
                    .allow = {}}};
}

std::span<char> HttpRequestReader::Body() const {
  if (phase_ == Phase::kInputBody) {
    return {AsChars(input_.bytes().data()) + head_bytes_, body_end_ - head_bytes_};
  }
  if (body_.empty()) return {};
  return {AsChars(body_.bytes().data()), body_size_};
}

void HttpRequestReader::ReleaseInput() {
  input_.Release();
  input_size_ = body_end_ = 0;
}

}  // namespace hps::server
