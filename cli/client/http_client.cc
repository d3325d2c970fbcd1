#include "cli/client/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/macros.h"

namespace hps::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr int64_t kPollMsMax = 60'000;  // poll() takes an int

struct Exchange {
  std::string server;  // for messages
  Clock::time_point deadline;

  absl::Status Unavailable(const char* what, int error) const {
    return absl::UnavailableError(absl::StrCat(server, ": ", what, ": ", std::strerror(error)));
  }

  // Waits until the socket can go on.
  absl::Status Await(const Descriptor& socket, short events) const {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) break;
      pollfd wanted = {.fd = socket.number(), .events = events, .revents = 0};
      const int ready = poll(&wanted, 1, static_cast<int>(std::min(left, kPollMsMax)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno == EINTR) return absl::CancelledError("interrupted");
      if (ready < 0) return Unavailable("waiting failed", errno);
    }
    return absl::DeadlineExceededError(absl::StrCat(server, ": no answer in time"));
  }
};

absl::Status Connect(const Descriptor& socket, const addrinfo& address, const Exchange& exchange) {
  if (connect(socket.number(), address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return exchange.Unavailable("can't connect", errno);
  HPS_RETURN_IF_ERROR(exchange.Await(socket, POLLOUT));
  int error = 0;
  socklen_t error_bytes = sizeof(error);
  getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
  return error == 0 ? absl::OkStatus() : exchange.Unavailable("can't connect", error);
}

// Tries the host's addresses in turn.
absl::StatusOr<Descriptor> OpenSocket(const HttpServerAddress& server, const Exchange& exchange) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(exchange.server, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  absl::Status last = absl::UnavailableError(absl::StrCat(exchange.server, ": no address"));
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Descriptor made(
        socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (made.number() < 0) return exchange.Unavailable("no socket", errno);
    last = Connect(made, *address, exchange);
    if (last.ok()) return made;
    if (absl::IsCancelled(last) || absl::IsDeadlineExceeded(last)) break;
  }
  return last;
}

bool HasInput(const Descriptor& socket) {
  pollfd wanted = {.fd = socket.number(), .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) > 0;
}

// Sends the bytes of `output` from `sent` on, as many as the socket takes. False: the connection is
// broken.
bool SendSome(const Descriptor& socket, std::string_view output, size_t* sent) {
  const std::string_view rest = output.substr(*sent);
  const ssize_t now = send(socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (now > 0) *sent += static_cast<size_t>(now);
  return now >= 0 || errno == EAGAIN;
}

// Returns early if the server answers before it has the whole request, or closes the connection: it
// refuses the request. Its answer can still be received.
absl::Status Send(const Descriptor& socket, std::string_view text, const Exchange& exchange) {
  size_t sent = 0;
  while (sent < text.size()) {
    HPS_RETURN_IF_ERROR(exchange.Await(socket, POLLOUT | POLLIN));
    if (HasInput(socket) || !SendSome(socket, text, &sent)) return absl::OkStatus();
  }
  return absl::OkStatus();
}

using Piece = std::array<char, 16 << 10>;

// The bytes that were received; empty at the end of the connection, also if the server resets it.
// The length in the answer's head tells whether the answer is complete.
absl::StatusOr<std::string_view> Receive(const Descriptor& socket, Piece& piece,
                                         const Exchange& exchange) {
  while (true) {
    HPS_RETURN_IF_ERROR(exchange.Await(socket, POLLIN));
    const ssize_t received = recv(socket.number(), piece.data(), piece.size(), 0);
    if (received >= 0) return std::string_view(piece.data(), static_cast<size_t>(received));
    if (errno == ECONNRESET) return std::string_view();
    if (errno != EAGAIN) return exchange.Unavailable("can't receive", errno);
  }
}

absl::Status CheckBytes(const std::string& answer, uint64_t bytes_max, const Exchange& exchange) {
  if (answer.size() <= bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(exchange.server, ": the answer has more than ", bytes_max, " bytes"));
}

// The answer when the connection has ended. If no byte was received, the server has ended or
// refused the connection. The request can be repeated, so this is UNAVAILABLE.
absl::StatusOr<std::string> Whole(std::string answer, const Exchange& exchange) {
  if (!answer.empty()) return answer;
  return absl::UnavailableError(
      absl::StrCat(exchange.server, ": the connection ended before there was an answer"));
}

// All bytes up to the end of the connection. The request asks the server to close it.
absl::StatusOr<std::string> AskPlainly(const Descriptor& socket, const std::string& request,
                                       uint64_t bytes_max, const Exchange& exchange) {
  HPS_RETURN_IF_ERROR(Send(socket, request, exchange));
  std::string answer;
  Piece piece;
  while (true) {
    HPS_ASSIGN_OR_RETURN(const std::string_view received, Receive(socket, piece, exchange));
    if (received.empty()) return Whole(std::move(answer), exchange);
    answer += received;
    HPS_RETURN_IF_ERROR(CheckBytes(answer, bytes_max, exchange));
  }
}

absl::StatusOr<std::string> AskOverTls(const Descriptor& socket, TlsClient& tls, uint64_t bytes_max,
                                       const Exchange& exchange) {
  Piece piece;
  std::string output;
  size_t sent = 0;  // of output
  while (true) {
    if (sent == output.size()) {
      output = tls.TakeOutput();
      sent = 0;
      if (output.empty() && tls.has_ended()) return Whole(tls.answer(), exchange);
    }
    const bool has_output = sent < output.size();
    const short events = has_output ? POLLIN | POLLOUT : POLLIN;
    HPS_RETURN_IF_ERROR(exchange.Await(socket, events));
    if (has_output && !HasInput(socket) && SendSome(socket, output, &sent)) continue;
    HPS_ASSIGN_OR_RETURN(const std::string_view received, Receive(socket, piece, exchange));
    if (received.empty()) return Whole(tls.answer(), exchange);
    if (const absl::Status fed = tls.Feed(received); !fed.ok()) {
      return absl::Status(fed.code(), absl::StrCat(exchange.server, ": ", fed.message()));
    }
    HPS_RETURN_IF_ERROR(CheckBytes(tls.answer(), bytes_max, exchange));
  }
}

// The value of a header field, by its name in lower case.
std::optional<std::string> Field(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 2));
    const size_t colon = line.find(':');
    if (colon != name.size()) continue;
    std::string found(line.substr(0, colon));
    std::transform(found.begin(), found.end(), found.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (found != name) continue;
    const size_t begin = line.find_first_not_of(' ', colon + 1);
    return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
  }
  return std::nullopt;
}

std::optional<std::string> JoinChunks(std::string_view body) {
  std::string joined;
  while (true) {
    const size_t line_end = body.find("\r\n");
    if (line_end == std::string_view::npos) return std::nullopt;
    uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(body.data(), body.data() + line_end, bytes, 16);
    if (error != std::errc() || end == body.data()) return std::nullopt;
    body.remove_prefix(line_end + 2);
    if (bytes == 0) return joined;
    if (body.size() < 2 || bytes > body.size() - 2) return std::nullopt;
    joined += body.substr(0, bytes);
    body.remove_prefix(bytes + 2);
  }
}

absl::Status StatusOf(int code, const std::string& server) {
  const std::string message = absl::StrCat(server, " answered ", code);
  if (code == 200) return absl::OkStatus();
  if (code == 401) return absl::UnauthenticatedError(message + ": it asks for a token");
  if (code == 404)
    return absl::NotFoundError(message + ": this is not an hps server, or an older one");
  return absl::UnavailableError(message);
}

absl::StatusOr<HttpAnswer> ParseAnswer(std::string_view answer, const Exchange& exchange) {
  const auto wrong = [&exchange](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(exchange.server, ": the answer ", what));
  };
  const size_t head_end = answer.find("\r\n\r\n");
  const std::string_view digits = answer.substr(std::min<size_t>(answer.size(), 9), 3);
  const char* const digits_end = digits.data() + digits.size();
  int code = 0;
  const auto read = std::from_chars(digits.data(), digits_end, code);
  if (!answer.starts_with("HTTP/1.") || head_end == std::string_view::npos ||
      head_end > kHeadBytesMax || digits.size() != 3 || read.ec != std::errc() ||
      read.ptr != digits_end) {
    return wrong("is not HTTP");
  }
  const std::string_view head = answer.substr(0, head_end + 2);
  const std::string_view body = answer.substr(head_end + 4);
  if (Field(head, "transfer-encoding") == "chunked") {
    std::optional<std::string> joined = JoinChunks(body);
    if (!joined.has_value()) return wrong("was cut off");
    return HttpAnswer{.code = code, .body = *std::move(joined)};
  }
  const std::optional<std::string> length = Field(head, "content-length");
  if (length.has_value() && *length != std::to_string(body.size())) return wrong("was cut off");
  return HttpAnswer{.code = code, .body = std::string(body)};
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
  const Exchange exchange = {.server = server.text(), .deadline = Clock::now() + options.timeout};
  HPS_ASSIGN_OR_RETURN(const Descriptor socket, OpenSocket(server, exchange));
  std::string text = Encode(server, request, options.token);
  const uint64_t bytes_max = options.body_bytes_max + kHeadBytesMax;
  std::string answer;
  if (server.has_tls) {
    HPS_ASSIGN_OR_RETURN(const auto tls,
                         TlsClient::Create(server.host, options.trust, std::move(text)));
    HPS_ASSIGN_OR_RETURN(answer, AskOverTls(socket, *tls, bytes_max, exchange));
  } else {
    HPS_ASSIGN_OR_RETURN(answer, AskPlainly(socket, text, bytes_max, exchange));
  }
  return ParseAnswer(answer, exchange);
}

absl::StatusOr<std::string> HttpGet(const HttpServerAddress& server, const std::string& path,
                                    const HttpOptions& options) {
  HPS_ASSIGN_OR_RETURN(HttpAnswer answer, HttpSend(server, {.path = path}, options));
  HPS_RETURN_IF_ERROR(StatusOf(answer.code, server.text()));
  return std::move(answer.body);
}

}  // namespace hps::cli
