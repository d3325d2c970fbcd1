#include "server/grpc/request_reader.h"

#include "base/macros.h"

namespace hps::server {
namespace {

// How much of a compressed message Head inflates.
constexpr size_t kInflatedHeadBytes = 4096;

absl::Status CheckCoding(Coding coding) {
  if (coding == Coding::kIdentity) {
    return absl::InvalidArgumentError(
        "the message's compressed flag is set, but the call has no grpc-encoding");
  }
  if (coding != Coding::kUnknown) return absl::OkStatus();
  return absl::UnimplementedError("unsupported grpc-encoding; use gzip or deflate");
}

}  // namespace

absl::StatusOr<RequestReader::Step> RequestReader::Next(uint64_t bytes_max, bool is_stream) {
  MessageReader::Message message;
  HPS_ASSIGN_OR_RETURN(const MessageReader::Step step, reader_.Front(bytes_max, pool_, &message));
  if (step == MessageReader::Step::kMessage) {
    if (!is_stream && reader_.has_more())
      return absl::UnimplementedError("the call has more than one request message");
    if (!is_stream && !is_ended_) return Step::kNeedsMore;
    packed_ = message;
    return Step::kMessage;
  }
  if (!is_ended_) return Step::kNeedsMore;
  if (reader_.has_more()) return absl::InvalidArgumentError("the call ended within a message");
  if (is_stream) return Step::kEnd;
  return absl::UnimplementedError("the call has no request message");
}

absl::StatusOr<std::span<const std::byte>> RequestReader::Head(Coding coding) {
  if (!packed_.is_compressed) return packed_.bytes;
  if (inflated_.memory.empty()) {
    HPS_RETURN_IF_ERROR(CheckCoding(coding));
    HPS_ASSIGN_OR_RETURN(inflated_, InflateHead(coding, packed_.bytes, kInflatedHeadBytes, pool_));
  }
  return inflated_.bytes();
}

absl::Status RequestReader::Unpack(Coding coding, uint64_t bytes_max) {
  if (!packed_.is_compressed) {
    message_ = packed_.bytes;
    return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(CheckCoding(coding));
  HPS_ASSIGN_OR_RETURN(inflated_,
                       Inflate(coding, packed_.bytes, bytes_max, GzipMembers::kOne, pool_));
  // The compressed message is not read again. Its memory may be needed to unpack the request.
  reader_.Pop();
  packed_.bytes = {};
  message_ = inflated_.bytes();
  return absl::OkStatus();
}

void RequestReader::ReleaseMessage() {
  reader_.Pop();
  packed_ = {};
  message_ = {};
  inflated_ = CodedBytes();
}

void RequestReader::Release() {
  ReleaseMessage();
  reader_.Clear();
}

void RequestReader::Clear() {
  Release();
  is_ended_ = false;
}

}  // namespace hps::server
