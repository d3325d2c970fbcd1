#include "l2_redis/redis_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

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

absl::StatusOr<std::vector<RedisSocket::SocketAddress>> RedisSocket::Resolve(
    const RedisAddress& address) {
  std::vector<SocketAddress> found;
  if (!address.unix_path.empty()) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    address.unix_path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    std::memcpy(&found.emplace_back().bytes, &name, sizeof(name));
    found.back().size = sizeof(name);
    return found;
  }
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = absl::StrCat(address.port);
  int error = 0;
  for (const int flags : {AI_NUMERICHOST | AI_NUMERICSERV, AI_ADDRCONFIG | AI_NUMERICSERV}) {
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
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

absl::StatusOr<RedisSocket> RedisSocket::Connect(const RedisAddress& address,
                                                 const RedisTlsFiles& tls_files) {
  HPS_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, Resolve(address));
  RedisSocket socket(std::move(addresses));
  if (tls_files.enabled) {
    HPS_ASSIGN_OR_RETURN(socket.tls_, RedisTls::Create(tls_files, address.host));
  }
  HPS_RETURN_IF_ERROR(socket.ConnectToNext(EADDRNOTAVAIL));
  return socket;
}

// `error` is that of the address before, and the result if no other one can be tried.
absl::Status RedisSocket::ConnectToNext(int error) {
  while (!untried_.empty()) {
    const SocketAddress next = untried_.back();
    untried_.pop_back();
    Descriptor descriptor(BeginConnect(next.bytes, next.size));
    if (descriptor.number() < 0) {
      error = errno;
      continue;
    }
    descriptor_ = std::move(descriptor);
    return absl::OkStatus();
  }
  return SystemError("connect", error);
}

short RedisSocket::events(short wanted) const {
  if (!is_open_ || tls_ == nullptr) return wanted;
  if (!tls_->is_done()) return tls_->awaited();
  return static_cast<short>(wanted | tls_->awaited());
}

absl::Status RedisSocket::FinishConnect() {
  if (!is_open_) HPS_RETURN_IF_ERROR(FinishOpen());
  if (!is_open_ || tls_ == nullptr) return absl::OkStatus();
  return tls_->Handshake();
}

absl::Status RedisSocket::FinishOpen() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(descriptor_.number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return ConnectToNext(error);
  is_open_ = true;
  untried_.clear();
  if (tls_ != nullptr) tls_->Begin(descriptor_.number());
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisSocket::Read(char* to, size_t size) {
  if (tls_ != nullptr) return tls_->Read(to, size);
  for (;;) {
    const ssize_t count = recv(descriptor_.number(), to, size, 0);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return absl::UnavailableError("the server closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return SystemError("read", errno);
  }
}

absl::StatusOr<size_t> RedisSocket::Write(std::string_view bytes) {
  if (tls_ != nullptr) return tls_->Write(bytes);
  for (;;) {
    const ssize_t count = send(descriptor_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return SystemError("write", errno);
  }
}

bool RedisSocket::is_stale() const {
  if (tls_ != nullptr && tls_->has_bytes()) return true;
  char byte = 0;
  const ssize_t count = recv(descriptor_.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace hps
