#include "cli/client/http_client.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/client_socket.h"
#include "base/macros.h"
#include "boost/asio/buffer.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"

namespace hps::cli {
namespace {

using Clock = std::chrono::steady_clock;
namespace http = boost::beast::http;

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr size_t kLastChunkBytes = 5;   // "0" and two line ends
constexpr int64_t kPollMsMax = 60'000;  // poll() takes an int

// One request and its answer.
class Exchange {
 public:
  Exchange(std::string request, const HttpOptions& options)
      : request_(std::move(request)),
        deadline_(Clock::now() + options.timeout),
        body_bytes_max_(options.body_bytes_max) {
    parser_.eager(true);
    parser_.header_limit(kHeadBytesMax);
    parser_.body_limit(body_bytes_max_);
  }

  absl::StatusOr<HttpAnswer> Run(const HttpServerAddress& server, TlsConnection tls);

 private:
  absl::Status Await() const;
  absl::Status Move();
  absl::Status Parse(std::string_view piece);
  absl::Status End(const absl::Status& why);

  const std::string request_;
  const Clock::time_point deadline_;
  const uint64_t body_bytes_max_;
  std::unique_ptr<ClientSocket> socket_;
  size_t sent_ = 0;       // bytes of the request
  std::string received_;  // and not parsed yet
  http::response_parser<http::string_body> parser_;
};

absl::StatusOr<HttpAnswer> Exchange::Run(const HttpServerAddress& server, TlsConnection tls) {
  HPS_ASSIGN_OR_RETURN(socket_, ClientSocket::Connect(server.host, server.port, std::move(tls)));
  while (!parser_.is_done()) {
    HPS_RETURN_IF_ERROR(Await());
    absl::Status moved = socket_->connected() ? Move() : socket_->FinishConnect();
    const bool is_open = socket_->connected() || socket_->is_in_tls_handshake();
    if (is_open && absl::IsUnavailable(moved)) moved = End(moved);
    HPS_RETURN_IF_ERROR(moved);
  }
  auto& answer = parser_.get();
  return HttpAnswer{.code = static_cast<int>(answer.result_int()),
                    .body = std::move(answer.body())};
}

// Waits until the socket can go on.
absl::Status Exchange::Await() const {
  const short wanted = sent_ < request_.size() ? POLLIN | POLLOUT : POLLIN;
  pollfd at = {.fd = socket_->descriptor(), .events = socket_->events(wanted), .revents = 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0) return absl::DeadlineExceededError("no answer in time");
    const int ready = poll(&at, 1, static_cast<int>(std::min(left, kPollMsMax)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno == EINTR) return absl::CancelledError("interrupted");
    if (ready < 0)
      return absl::UnavailableError(absl::StrCat("waiting failed: ", std::strerror(errno)));
  }
}

// The server may answer before it has the whole request, and then refuse the rest: what was
// received comes first.
absl::Status Exchange::Move() {
  std::array<char, 16 << 10> piece;  // the largest record of TLS: none of it stays unseen by poll()
  HPS_ASSIGN_OR_RETURN(const size_t count, socket_->Read(piece.data(), piece.size()));
  if (count > 0) return Parse({piece.data(), count});
  if (sent_ == request_.size()) return absl::OkStatus();
  const auto sent = socket_->Write(std::string_view(request_).substr(sent_));
  sent_ = sent.ok() ? sent_ + *sent : request_.size();
  return absl::OkStatus();
}

absl::Status Exchange::Parse(std::string_view piece) {
  received_ += piece;
  // Beast (Boost 1.81) aborts the process if it gets a part of the last chunk first and the rest
  // later: BOOST_ASSERT(n >= 5) in parse_chunk_header. No body has fewer bytes left.
  if (parser_.is_header_done() && parser_.chunked() && received_.size() < kLastChunkBytes &&
      received_.starts_with('0')) {
    return absl::OkStatus();
  }
  boost::beast::error_code error;
  received_.erase(0, parser_.put(boost::asio::buffer(received_), error));
  if (error == http::error::body_limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer has more than ", body_bytes_max_, " bytes"));
  }
  const bool is_http = !error || error == http::error::need_more;
  if (is_http && received_.size() <= kHeadBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError("the answer is not HTTP");
}

// The connection has ended, or the server has reset it. Without a byte of an answer, the server has
// ended or refused the connection. The request can be repeated, so this is UNAVAILABLE.
absl::Status Exchange::End(const absl::Status& why) {
  if (!parser_.got_some())
    return absl::UnavailableError("the connection ended before there was an answer");
  boost::beast::error_code error;
  parser_.put_eof(error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the answer was cut off: ", why.message()));
}

absl::Status StatusOf(int code, const std::string& server) {
  const std::string message = absl::StrCat(server, " answered ", code);
  if (code == 200) return absl::OkStatus();
  if (code == 401) return absl::UnauthenticatedError(message + ": it asks for a token");
  if (code == 404)
    return absl::NotFoundError(message + ": this is not an hps server, or an older one");
  return absl::UnavailableError(message);
}

std::string Encode(const HttpServerAddress& server, const HttpRequest& request,
                   const std::string& token) {
  const bool is_v6 = server.host.find(':') != std::string::npos;
  std::string text(request.method);
  absl::StrAppend(&text, " ", request.path, " HTTP/1.1\r\nHost: ", is_v6 ? "[" : "", server.host,
                  is_v6 ? "]:" : ":", server.port, "\r\nConnection: close\r\n");
  if (!token.empty()) absl::StrAppend(&text, "Authorization: Bearer ", token, "\r\n");
  if (request.method != "GET") {
    absl::StrAppend(&text, "Content-Length: ", request.body.size(), "\r\n");
  }
  absl::StrAppend(&text, request.fields, "\r\n");
  text += request.body;
  return text;
}

}  // namespace

absl::StatusOr<HttpServerAddress> ParseServerUrl(const std::string& url) {
  const auto wrong = [&url] {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", url,
        "' is not the address of a server: expected http://HOST:PORT or https://HOST:PORT"));
  };
  HttpServerAddress address;
  std::string_view rest = url;
  address.has_tls = rest.starts_with("https://");
  if (rest.starts_with("http://") || address.has_tls) rest.remove_prefix(rest.find("//") + 2);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool is_v6 = rest.starts_with('[');
  const size_t host_end = is_v6 ? rest.find(']') : rest.find(':');
  if (is_v6 && host_end == std::string_view::npos) return wrong();
  address.host = std::string(rest.substr(is_v6 ? 1 : 0, host_end - (is_v6 ? 1 : 0)));
  const std::string_view port = rest.substr(std::min(rest.size(), is_v6 ? host_end + 1 : host_end));
  address.port = port.empty() ? "8000" : std::string(port.substr(1));
  uint16_t number = 0;
  const char* const port_end = address.port.data() + address.port.size();
  const auto read = std::from_chars(address.port.data(), port_end, number);
  const bool is_port = read.ec == std::errc() && read.ptr == port_end && number > 0;
  const bool is_host =
      !address.host.empty() &&
      std::all_of(address.host.begin(), address.host.end(), [is_v6](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || (is_v6 && c == ':');
      });
  if (!is_port || !is_host || (!port.empty() && port[0] != ':')) return wrong();
  return address;
}

absl::StatusOr<HttpAnswer> HttpSend(const HttpServerAddress& server, const HttpRequest& request,
                                    const HttpOptions& options) {
  TlsConnection tls;
  if (server.has_tls) {
    absl::StatusOr<TlsConnection> made = NewTlsClient(options.tls, server.host);
    if (!made.ok()) return absl::InvalidArgumentError(made.status().message());
    tls = *std::move(made);
  }
  Exchange exchange(Encode(server, request, options.token), options);
  absl::StatusOr<HttpAnswer> answer = exchange.Run(server, std::move(tls));
  if (answer.ok() || absl::IsCancelled(answer.status())) return answer;
  return absl::Status(answer.status().code(),
                      absl::StrCat(server.text(), ": ", answer.status().message()));
}

absl::StatusOr<std::string> HttpGet(const HttpServerAddress& server, const std::string& path,
                                    const HttpOptions& options) {
  HPS_ASSIGN_OR_RETURN(HttpAnswer answer, HttpSend(server, {.path = path}, options));
  HPS_RETURN_IF_ERROR(StatusOf(answer.code, server.text()));
  return std::move(answer.body);
}

}  // namespace hps::cli
