#include "base/client_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "openssl/err.h"
#include "openssl/ssl.h"

namespace hps {
namespace {

absl::Status SystemError(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// -1, and errno, if the address can't be used.
int BeginConnect(const sockaddr_storage& address, socklen_t size) {
  const int descriptor = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1;
  if (address.ss_family != AF_UNIX)
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto* const any = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  if (connect(descriptor, any, size) == 0 || errno == EINPROGRESS) return descriptor;
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<std::vector<ClientSocket::SocketAddress>> ClientSocket::Resolve(
    const std::string& host, const std::string& port) {
  std::vector<SocketAddress> found;
  if (port.empty()) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    host.copy(name.sun_path, sizeof(name.sun_path) - 1);
    std::memcpy(&found.emplace_back().bytes, &name, sizeof(name));
    found.back().size = sizeof(name);
    return found;
  }
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  int error = 0;
  for (const int flags : {AI_NUMERICHOST | AI_NUMERICSERV, AI_NUMERICSERV}) {
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
    if (error != 0) continue;
    const std::unique_ptr<addrinfo, FreeAddresses> owner(list);
    for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
      std::memcpy(&found.emplace_back().bytes, at->ai_addr, at->ai_addrlen);
      found.back().size = at->ai_addrlen;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }
  return absl::UnavailableError(absl::StrCat("host name: ", gai_strerror(error)));
}

absl::StatusOr<std::unique_ptr<ClientSocket>> ClientSocket::Connect(const std::string& host,
                                                                    const std::string& port,
                                                                    TlsConnection tls) {
  HPS_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, Resolve(host, port));
  std::unique_ptr<ClientSocket> socket(new ClientSocket(std::move(addresses), std::move(tls)));
  HPS_RETURN_IF_ERROR(socket->ConnectToNext(EADDRNOTAVAIL));
  return socket;
}

ClientSocket::ClientSocket(std::vector<SocketAddress> addresses, TlsConnection tls)
    : untried_(std::move(addresses)), tls_(std::move(tls)) {
  if (tls_ != nullptr) SetTlsSocket(tls_.get(), &descriptor_);
}

// `error` is that of the address before, and the result if no other one can be tried.
absl::Status ClientSocket::ConnectToNext(int error) {
  while (!untried_.empty()) {
    const SocketAddress next = untried_.back();
    untried_.pop_back();
    const int descriptor = BeginConnect(next.bytes, next.size);
    if (descriptor < 0) {
      error = errno;
      continue;
    }
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = descriptor;
    return absl::OkStatus();
  }
  return SystemError("can't connect", error);
}

ClientSocket::~ClientSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

short ClientSocket::events(short wanted) const {
  if (is_in_tls_handshake()) return awaited_;
  return static_cast<short>(wanted | awaited_);
}

absl::Status ClientSocket::FinishConnect() {
  if (state_ == State::kConnecting) {
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return ConnectToNext(error);
    untried_.clear();
    state_ = tls_ == nullptr ? State::kConnected : State::kHandshake;
  }
  if (connected()) return absl::OkStatus();
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  if (result == 1) state_ = State::kConnected;
  return TlsResult(result, 0).status();
}

absl::StatusOr<size_t> ClientSocket::Read(char* to, size_t size) {
  if (tls_ != nullptr) {
    size_t count = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(tls_.get(), to, size, &count);
    return TlsResult(result, count);
  }
  for (;;) {
    const ssize_t count = recv(descriptor_, to, size, 0);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return absl::UnavailableError("the server closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return SystemError("read", errno);
  }
}

absl::StatusOr<size_t> ClientSocket::Write(std::string_view bytes) {
  if (tls_ != nullptr) {
    size_t count = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &count);
    return TlsResult(result, count);
  }
  for (;;) {
    const ssize_t count = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return SystemError("write", errno);
  }
}

// `result` of the last call of OpenSSL, which moved `count` bytes.
absl::StatusOr<size_t> ClientSocket::TlsResult(int result, size_t count) {
  awaited_ = 0;
  if (result == 1) return count;
  const int error = SSL_get_error(tls_.get(), result);
  if (error == SSL_ERROR_WANT_READ) awaited_ = POLLIN;
  if (error == SSL_ERROR_WANT_WRITE) awaited_ = POLLOUT;
  if (awaited_ != 0) return 0;
  return TlsClientError(tls_.get());
}

bool ClientSocket::is_stale() const {
  if (tls_ != nullptr && SSL_has_pending(tls_.get()) == 1) return true;
  char byte = 0;
  const ssize_t count = recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace hps
