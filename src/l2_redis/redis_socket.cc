#include "l2_redis/redis_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

absl::Status SystemError(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const RedisAddress& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = absl::StrCat(address.port);
  int error = 0;
  for (const int flags : {AI_NUMERICHOST | AI_NUMERICSERV, AI_ADDRCONFIG | AI_NUMERICSERV}) {
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
    if (error == 0) return Addresses(list);
  }
  return absl::UnavailableError(absl::StrCat("host name: ", gai_strerror(error)));
}

// -1, and errno, if the address can't be used.
int BeginConnect(int family, const sockaddr* address, socklen_t size) {
  const int descriptor = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1;
  if (family != AF_UNIX) setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(descriptor, address, size) == 0 || errno == EINPROGRESS) return descriptor;
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<RedisSocket> RedisSocket::Connect(const RedisAddress& address) {
  int descriptor = -1;
  if (!address.unix_path.empty()) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    address.unix_path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    descriptor =
        BeginConnect(AF_UNIX, static_cast<sockaddr*>(static_cast<void*>(&name)), sizeof(name));
  } else {
    HPS_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address));
    for (const addrinfo* at = addresses.get(); at != nullptr && descriptor < 0; at = at->ai_next)
      descriptor = BeginConnect(at->ai_family, at->ai_addr, at->ai_addrlen);
  }
  if (descriptor < 0) return SystemError("connect", errno);
  return RedisSocket(descriptor);
}

RedisSocket::RedisSocket(RedisSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), connected_(other.connected_) {}

RedisSocket::~RedisSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status RedisSocket::FinishConnect() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return SystemError("connect", error);
  connected_ = true;
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisSocket::Read(char* to, size_t size) {
  for (;;) {
    const ssize_t count = recv(descriptor_, to, size, 0);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return absl::UnavailableError("the server closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return SystemError("read", errno);
  }
}

absl::StatusOr<size_t> RedisSocket::Write(std::string_view bytes) {
  for (;;) {
    const ssize_t count = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return SystemError("write", errno);
  }
}

bool RedisSocket::is_stale() const {
  char byte = 0;
  const ssize_t count = recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace hps
