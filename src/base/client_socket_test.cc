#include "base/client_socket.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/test_certificates.h"
#include "openssl/ssl.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

// Serves one connection on 127.0.0.1 by `serve`, which has its socket, then closes it.
class OneConnection {
 public:
  explicit OneConnection(std::function<void(int)> serve)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const any = static_cast<sockaddr*>(static_cast<void*>(&address));
    EXPECT_EQ(bind(listener_.number(), any, bytes), 0);
    EXPECT_EQ(listen(listener_.number(), 1), 0);
    EXPECT_EQ(getsockname(listener_.number(), any, &bytes), 0);
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, serve = std::move(serve)] {
      const Descriptor connection(accept(listener_.number(), nullptr, nullptr));
      serve(connection.number());
    });
  }
  ~OneConnection() { thread_.join(); }

  const std::string& port() const { return port_; }

 private:
  const Descriptor listener_;
  std::string port_;
  std::thread thread_;
};

void Await(const ClientSocket& socket, short wanted) {
  pollfd at = {.fd = socket.descriptor(), .events = socket.events(wanted), .revents = 0};
  EXPECT_EQ(poll(&at, 1, 60'000), 1);
}

absl::Status FinishConnect(ClientSocket& socket) {
  while (!socket.connected()) {
    Await(socket, POLLOUT);
    if (const absl::Status status = socket.FinishConnect(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// All that comes until the connection ends.
std::string ReadAll(ClientSocket& socket) {
  std::string text;
  std::array<char, 100> piece;
  for (;;) {
    const absl::StatusOr<size_t> count = socket.Read(piece.data(), piece.size());
    if (!count.ok()) {
      EXPECT_EQ(count.status().code(), absl::StatusCode::kUnavailable) << count.status();
      return text;
    }
    text.append(piece.data(), *count);
    if (*count == 0) Await(socket, POLLIN);
  }
}

void WriteAll(ClientSocket& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const absl::StatusOr<size_t> count = socket.Write(bytes);
    ASSERT_TRUE(count.ok()) << count.status();
    bytes.remove_prefix(*count);
    if (*count == 0) Await(socket, POLLOUT);
  }
}

std::unique_ptr<ClientSocket> ConnectTo(const OneConnection& server, TlsConnection tls = nullptr) {
  auto socket = ClientSocket::Connect("127.0.0.1", server.port(), std::move(tls));
  EXPECT_TRUE(socket.ok()) << socket.status();
  return *std::move(socket);
}

// Receives `bytes` bytes and sends them back, by TLS.
void Echo(int socket, const TestCertificate& certificate, size_t bytes) {
  const TlsContextOwner context = NewTlsContext(TLS_server_method()).value();
  UseCertificate(context.get(), certificate);
  const TlsConnection connection = NewTlsConnection(context.get());
  SetTlsSocket(connection.get(), &socket);
  if (SSL_accept(connection.get()) != 1) return;
  std::string received(bytes, '\0');
  size_t got = 0;
  size_t count = 0;
  while (got < bytes && SSL_read_ex(connection.get(), &received[got], bytes - got, &count) == 1)
    got += count;
  for (size_t sent = 0; sent < got; sent += count)
    if (SSL_write_ex(connection.get(), &received[sent], got - sent, &count) != 1) return;
  SSL_shutdown(connection.get());
}

TEST(ClientSocketTest, MovesBytesWithoutTls) {
  OneConnection server([](int socket) { EXPECT_EQ(send(socket, "hello", 5, 0), 5); });
  const auto socket = ConnectTo(server);
  ASSERT_TRUE(FinishConnect(*socket).ok());
  EXPECT_EQ(ReadAll(*socket), "hello");
  EXPECT_TRUE(socket->is_stale());
}

TEST(ClientSocketTest, MovesBytesByTls) {
  const TestDirectory directory;
  const TestCertificate certificate = MakeTestCertificate();
  const TlsFiles files = {.ca = directory.Write("ca.pem", certificate.certificate_pem)};
  const std::string bytes(500'000, 'x');
  OneConnection server([&](int socket) { Echo(socket, certificate, bytes.size()); });
  const auto socket = ConnectTo(server, NewTlsClient(files, "localhost").value());
  ASSERT_EQ(FinishConnect(*socket), absl::OkStatus());
  WriteAll(*socket, bytes);
  EXPECT_TRUE(ReadAll(*socket) == bytes);
}

TEST(ClientSocketTest, TheServerMustBeTrustedForThisHost) {
  const TestDirectory directory;
  const TestCertificate certificate = MakeTestCertificate();
  const std::string own = directory.Write("ca.pem", certificate.certificate_pem);
  const std::string other = directory.Write("other.pem", MakeTestCertificate().certificate_pem);
  const auto refused = [&](const std::string& ca, const std::string& host) {
    OneConnection server([&](int socket) { Echo(socket, certificate, 1); });
    const auto socket = ConnectTo(server, NewTlsClient({.ca = ca}, host).value());
    const absl::Status status = FinishConnect(*socket);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    return std::string(status.message());
  };
  EXPECT_THAT(refused(own, "elsewhere"), HasSubstr("not trusted: hostname mismatch"));
  EXPECT_THAT(refused(own, "127.0.0.1"), HasSubstr("not trusted: IP address mismatch"));
  EXPECT_THAT(refused(other, "localhost"), HasSubstr("not trusted: "));
  EXPECT_THAT(refused("", "localhost"), HasSubstr("not trusted: "));  // by the system
}

TEST(ClientSocketTest, NamesTheHostWhenTlsBegins) {
  for (const char* host : {"localhost", "127.0.0.1", "::1"}) {
    std::array<char, 4096> hello{};
    {
      OneConnection server([&](int socket) { recv(socket, hello.data(), hello.size(), 0); });
      const auto socket = ConnectTo(server, NewTlsClient({}, host).value());
      EXPECT_EQ(FinishConnect(*socket).code(), absl::StatusCode::kUnavailable);
    }
    const std::string_view text(hello.data(), hello.size());
    EXPECT_EQ(text[0], 0x16) << "a handshake";
    EXPECT_EQ(text.find("localhost") != std::string_view::npos, host == std::string("localhost"));
  }
}

TEST(ClientSocketTest, SaysSoWhenTheServerSpeaksNoTls) {
  OneConnection server([](int socket) {
    char byte = 0;
    recv(socket, &byte, 1, 0);
    constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_GT(send(socket, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL), 0);
    while (recv(socket, &byte, 1, 0) > 0) continue;
  });
  const auto socket = ConnectTo(server, NewTlsClient({}, "localhost").value());
  const absl::Status refused = FinishConnect(*socket);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does the server speak TLS?"));
}

TEST(ClientSocketTest, NobodyThereIsUnavailable) {
  const Descriptor bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // it does not listen
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* const any = static_cast<sockaddr*>(static_cast<void*>(&address));
  ASSERT_EQ(bind(bound.number(), any, bytes), 0);
  ASSERT_EQ(getsockname(bound.number(), any, &bytes), 0);
  const auto socket =
      ClientSocket::Connect("127.0.0.1", std::to_string(ntohs(address.sin_port)), nullptr);
  const absl::Status refused = socket.ok() ? FinishConnect(**socket) : socket.status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("can't connect: "));
  EXPECT_EQ(ClientSocket::Connect("no such host", "1", nullptr).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hps
