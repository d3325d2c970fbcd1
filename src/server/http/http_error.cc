#include "server/http/http_error.h"

#include "base/public_message.h"
#include "boost/beast/http/status.hpp"

namespace hps::server {

int HttpCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return IsDiskFull(status) ? 507 : 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string_view ReasonPhrase(int code) {
  namespace http = boost::beast::http;
  const auto phrase = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(code)));
  return {phrase.data(), phrase.size()};
}

}  // namespace hps::server
