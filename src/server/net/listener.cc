#include "server/net/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::server {
namespace {

constexpr int kBacklog = 4096;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

bool IsPort(const std::string& text) {
  uint16_t port = 0;
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), port);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool IsLoopback(const sockaddr_storage& address) {
  const void* const any = &address;
  if (address.ss_family == AF_INET)
    return server::IsLoopback(static_cast<const sockaddr_in*>(any)->sin_addr);
  return address.ss_family == AF_INET6 &&
         server::IsLoopback(static_cast<const sockaddr_in6*>(any)->sin6_addr);
}

}  // namespace

bool IsLoopback(const in_addr& address) {
  return ntohl(address.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

bool IsLoopback(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == IN_LOOPBACKNET);
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, std::min(colon, address.size()));
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty() || !IsPort(port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("server: '", address, "' is not an address: expected HOST:PORT"));
  }
  std::unique_ptr<Listener> listener(new Listener);
  HPS_RETURN_IF_ERROR(listener->Bind(host, port));
  sockaddr_storage taken{};
  socklen_t size = sizeof(taken);
  auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&taken));
  std::array<char, 16> taken_port{};
  if (getsockname(listener->fd_, generic, &size) != 0 ||
      getnameinfo(generic, size, nullptr, 0, taken_port.data(), taken_port.size(),
                  NI_NUMERICSERV) != 0) {
    return absl::UnavailableError(absl::StrCat("server: ", address, ": ", std::strerror(errno)));
  }
  listener->is_on_loopback_ = IsLoopback(taken);
  listener->address_ = absl::StrCat(address.substr(0, colon), ":", taken_port.data());
  return listener;
}

absl::Status Listener::Bind(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("server: ", host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd_ < 0 || setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd_, found->ai_addr, found->ai_addrlen) != 0 || listen(fd_, kBacklog) != 0) {
    const int error = errno;
    const std::string message =
        absl::StrCat("server: ", host, ":", port, ": ", std::strerror(error));
    return error == EADDRNOTAVAIL ? absl::InvalidArgumentError(message)
                                  : absl::UnavailableError(message);
  }
  return absl::OkStatus();
}

Listener::~Listener() { Close(); }

void Listener::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

int Listener::Accept() {
  for (;;) {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      // Fails on a socket that the client has closed already, which then ends by itself.
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return fd;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return kNoRoom;
    if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) return kNone;
  }
}

}  // namespace hps::server
