#include "cli/client/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "testing/test_directory.h"

namespace hps::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ServerUrlTest, ReadsHostAndPort) {
  const std::array<std::array<std::string, 3>, 7> urls = {{
      {"http://127.0.0.1:8000", "127.0.0.1", "8000"},
      {"http://example-1.test:80/", "example-1.test", "80"},
      {"localhost:65535", "localhost", "65535"},
      {"localhost", "localhost", "8000"},
      {"http://[::1]:81", "::1", "81"},
      {"[fe80::1]", "fe80::1", "8000"},
      {"http://a_b", "a_b", "8000"},
  }};
  for (const auto& [url, host, port] : urls) {
    const auto address = ParseServerUrl(url);
    ASSERT_TRUE(address.ok()) << url << ": " << address.status();
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, port);
    EXPECT_FALSE(address->has_tls);
  }
  const auto secure = ParseServerUrl("https://example:8443/");
  ASSERT_TRUE(secure.ok()) << secure.status();
  EXPECT_EQ(secure->text(), "example:8443");
  EXPECT_TRUE(secure->has_tls);
}

TEST(ServerUrlTest, RefusesWhatIsNoServer) {
  for (const char* url :
       {"", "http://", "http://:80", "a:0", "a:65536", "a:80x", "a:", "a/b", "a b", "a\r\nX: y",
        "[::1", "[::1]80", "http://a:80/path", "a:80:90", "https://", "https://:80", "ftp://a"}) {
    EXPECT_EQ(ParseServerUrl(url).status().code(), absl::StatusCode::kInvalidArgument) << url;
  }
}

// Nothing is late because a machine is busy.
constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(1);

// A socket with an address of its own, where nobody listens yet.
int BoundSocket(HttpServerAddress* at) {
  const int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* const any = static_cast<sockaddr*>(static_cast<void*>(&address));
  EXPECT_EQ(bind(bound, any, bytes), 0);
  EXPECT_EQ(getsockname(bound, any, &bytes), 0);
  *at = {.host = "127.0.0.1", .port = std::to_string(ntohs(address.sin_port))};
  return bound;
}

// Answers one connection with a text, then closes it; keeps the request.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, bool closes = true,
                     const std::string& request_end = "\r\n\r\n", size_t piece_bytes = SIZE_MAX)
      : listener_(BoundSocket(&server_)) {
    EXPECT_EQ(listen(listener_, 1), 0);
    thread_ = std::thread([this, answer = std::move(answer), closes, request_end, piece_bytes] {
      const int connection = accept(listener_, nullptr, nullptr);
      std::array<char, 4096> buffer;
      while (request_.find(request_end) == std::string::npos) {
        const ssize_t received = recv(connection, buffer.data(), buffer.size(), 0);
        if (received <= 0) break;
        request_.append(buffer.data(), static_cast<size_t>(received));
      }
      size_t sent = 0;
      while (sent < answer.size()) {
        const ssize_t now = send(connection, answer.data() + sent,
                                 std::min(answer.size() - sent, piece_bytes), MSG_NOSIGNAL);
        if (now <= 0) break;
        // The client says no more: this ends after a moment, in which it takes the piece.
        pollfd more = {.fd = connection, .events = POLLIN, .revents = 0};
        if (piece_bytes != SIZE_MAX) poll(&more, 1, 2);
        sent += static_cast<size_t>(now);
      }
      // A server that does not close: until the client gives up.
      if (!closes) recv(connection, buffer.data(), buffer.size(), 0);
      close(connection);
    });
  }
  ~OneAnswer() { Join(); }

  const HttpServerAddress& server() const { return server_; }
  const std::string& request() {
    Join();
    return request_;
  }

 private:
  void Join() {
    if (!thread_.joinable()) return;
    thread_.join();
    close(listener_);
  }

  HttpServerAddress server_;
  const int listener_;
  std::string request_;
  std::thread thread_;
};

absl::StatusOr<std::string> GetFrom(const std::string& answer, uint64_t bytes_max = 1 << 20) {
  OneAnswer server(answer);
  return HttpGet(server.server(), "/p", {.timeout = kPatience, .body_bytes_max = bytes_max});
}

TEST(HttpClientTest, AsksAndReturnsTheBody) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  const auto body = HttpGet(server.server(), "/api?x=1", {.timeout = kPatience, .token = "secret"});
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(*body, "hi");
  EXPECT_THAT(server.request(), StartsWith("GET /api?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(server.request(), HasSubstr("\r\nAuthorization: Bearer secret\r\n"));
  EXPECT_THAT(server.request(), HasSubstr("\r\nConnection: close\r\n"));
}

// Catches: Beast's assertion that a last chunk comes as a whole.
TEST(HttpClientTest, TakesAnAnswerByteByByte) {
  for (const std::string& body : {std::string(), std::string("4\r\n0000\r\n")}) {
    OneAnswer server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + "0\r\n\r\n",
                     true, "\r\n\r\n", 1);
    const auto got = HttpGet(server.server(), "/p", {.timeout = kPatience});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, body.empty() ? "" : "0000");
  }
}

// Also of a head that comes in whole lines.
TEST(HttpClientTest, BoundsTheHead) {
  constexpr size_t kLineBytes = 64;
  std::string head = "HTTP/1.1 200 " + std::string(kLineBytes - 15, 'k') + "\r\n";
  const std::string line = "X-Field: " + std::string(kLineBytes - 11, 'x') + "\r\n";
  while (head.size() < size_t{256} << 10) head += line;
  OneAnswer server(head + "Content-Length: 0\r\n\r\n", true, "\r\n\r\n", 64 * kLineBytes);
  EXPECT_EQ(HttpGet(server.server(), "/p", {.timeout = kPatience}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HttpClientTest, SendsABodyAndReturnsAnyStatus) {
  OneAnswer server("HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusy", true, "the body");
  const auto answer = HttpSend(
      server.server(),
      {.method = "POST", .path = "/p", .fields = "X-Field: 1\r\n", .body = "this is the body"},
      {.timeout = kPatience});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 409);
  EXPECT_EQ(answer->body, "busy");
  EXPECT_THAT(server.request(), StartsWith("POST /p HTTP/1.1\r\n"));
  EXPECT_THAT(server.request(), HasSubstr("\r\nContent-Length: 16\r\nX-Field: 1\r\n\r\nthis is"));
}

// Catches: a refusal that is lost because the server ends the connection before it has the body.
TEST(HttpClientTest, ReadsAnAnswerThatComesBeforeTheBodyIsSent) {
  OneAnswer server("HTTP/1.1 413 No\r\nContent-Length: 5\r\n\r\nlarge");
  const std::string body(size_t{32} << 20, 'x');
  const auto answer = HttpSend(server.server(), {.method = "POST", .path = "/p", .body = body},
                               {.timeout = kPatience});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 413);
  EXPECT_EQ(answer->body, "large");
}

TEST(HttpClientTest, ReadsChunksAndBodiesWithoutLength) {
  EXPECT_EQ(GetFrom("HTTP/1.1 200 OK\r\nTRANSFER-Encoding:  chunked\r\n\r\n"
                    "3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n")
                .value(),
            "abc0123456789abcdef");
  EXPECT_EQ(GetFrom("HTTP/1.0 200 OK\r\n\r\nall").value(), "all");
}

TEST(HttpClientTest, AnswersThatAreWrongAreErrors) {
  for (const char* answer :
       {"x", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "SSH-2.0 hello there\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n"}) {
    EXPECT_EQ(GetFrom(answer).status().code(), absl::StatusCode::kInvalidArgument) << answer;
  }
}

TEST(HttpClientTest, NamesTheFileOfTlsThatIsWrong) {
  const TestDirectory directory;
  const std::string wrong = directory.Write("wrong.pem", "no certificate\n");
  for (const TlsFiles& files : {TlsFiles{.ca = wrong}, TlsFiles{.ca = directory.Path("none.pem")},
                                TlsFiles{.certificate = wrong, .key = wrong}}) {
    TlsFiles named = files;
    named.prefix = "--tls-";
    const absl::Status refused =
        HttpGet({.host = "localhost", .port = "1", .has_tls = true}, "/", {.tls = named}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(refused.message()),
        StartsWith(files.ca.empty() ? "--tls-certificate = " + wrong : "--tls-ca = " + files.ca));
  }
}

TEST(HttpClientTest, OtherStatusesSayWhat) {
  EXPECT_EQ(GetFrom("HTTP/1.1 401 No\r\n\r\n").status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(GetFrom("HTTP/1.1 404 No\r\n\r\n").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(GetFrom("HTTP/1.1 503 No\r\n\r\n").status().message()), HasSubstr("503"));
}

TEST(HttpClientTest, BoundsSizeAndTime) {
  EXPECT_EQ(GetFrom("HTTP/1.1 200 OK\r\n\r\n" + std::string(200 << 10, 'x'), 1000).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetFrom("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc")
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  // A line that never ends.
  EXPECT_EQ(GetFrom("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                    std::string(200 << 10, 'x'))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  OneAnswer silent("HTTP/1.1 200 OK\r\n", false);
  EXPECT_EQ(
      HttpGet(silent.server(), "/", {.timeout = std::chrono::milliseconds(50)}).status().code(),
      absl::StatusCode::kDeadlineExceeded);
}

TEST(HttpClientTest, AConnectionThatEndsWithoutAnAnswerIsUnavailable) {
  const absl::Status ended = GetFrom("").status();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("ended before there was an answer"));
  // In the handshake: at once, and within the first record.
  for (const char* begun : {"", "\x16\x03\x03"}) {
    OneAnswer server(begun, true, "\x16");  // how a client begins
    HttpServerAddress address = server.server();
    address.has_tls = true;
    const absl::Status cut = HttpGet(address, "/", {.timeout = kPatience}).status();
    EXPECT_EQ(cut.code(), absl::StatusCode::kUnavailable) << cut;
    EXPECT_THAT(std::string(cut.message()), HasSubstr("ended before there was an answer"));
  }
}

TEST(HttpClientTest, NobodyThereIsUnavailable) {
  HttpServerAddress nobody;
  const int bound = BoundSocket(&nobody);  // so that nobody else comes to have the port
  EXPECT_EQ(HttpGet(nobody, "/", {.timeout = kPatience}).status().code(),
            absl::StatusCode::kUnavailable);
  close(bound);
  EXPECT_EQ(HttpGet({.host = "no such host", .port = "1"}, "/", {}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hps::cli
