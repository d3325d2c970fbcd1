#include "server/grpc/call_metadata.h"

#include <optional>

#include "server/grpc/grpc_status.h"
#include "server/grpc/kept_text.h"

namespace hps::server {
namespace {

Coding CodingOf(std::string_view name) {
  if (name == "identity") return Coding::kIdentity;
  if (name == "gzip") return Coding::kGzip;
  return name == "deflate" ? Coding::kDeflate : Coding::kUnknown;
}

bool IsGrpc(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (!content_type.starts_with(kType)) return false;
  const std::string_view rest = content_type.substr(kType.size());
  return rest.empty() || rest == "+proto" || rest.front() == ';';
}

}  // namespace

void CallMetadata::Count(std::string_view name, std::string_view value) {
  constexpr size_t kFieldOverheadBytes = 32;
  bytes_ += name.size() + value.size() + kFieldOverheadBytes;
}

void CallMetadata::Add(std::string_view name, std::string_view value,
                       absl::FunctionRef<bool(std::string_view)> admits) {
  Count(name, value);
  if (is_too_large()) return;
  if (name == ":path") {
    path_.assign(value);
  } else if (name == ":method") {
    is_post_ = value == "POST";
  } else if (name == "content-type") {
    is_grpc_ = IsGrpc(value);
  } else if (name == "authorization") {
    // A proxy may have checked only one of two tokens, so two tokens are rejected.
    const bool is_accepted = token_ == Token::kAbsent && admits(value);
    token_ = is_accepted ? Token::kAccepted : Token::kRejected;
  } else if (name == "grpc-encoding") {
    coding_ = CodingOf(value);
  } else if (name == "grpc-timeout") {
    const std::optional<Duration> timeout = ParseTimeout(value);
    timeout_state_ = timeout ? Timeout::kValid : Timeout::kInvalid;
    if (timeout) timeout_ = *timeout;
  }
}

void CallMetadata::Clear() {
  bytes_ = 0;
  ClearText(&path_);
  is_post_ = is_grpc_ = false;
  token_ = Token::kAbsent;
  timeout_state_ = Timeout::kAbsent;
  timeout_ = {};
  coding_ = Coding::kIdentity;
}

}  // namespace hps::server
