#include "bench/serve/serve_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::bench {
namespace {

constexpr size_t kReceivedBytesMax = size_t{4} << 20;
constexpr timeval kTimeout{.tv_sec = 30, .tv_usec = 0};

absl::StatusOr<uint16_t> PortOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon != std::string::npos && absl::SimpleAtoi(address.substr(colon + 1), &port) &&
      port <= UINT16_MAX)
    return static_cast<uint16_t>(port);
  return absl::InvalidArgumentError("bench serve: no address: " + address);
}

absl::Status ConnectError(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("bench serve: can't connect to ", address, ": ", std::strerror(errno)));
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Repeats an interrupted call: the system does not where a socket has a time-out. Seen without any
// signal, in a thread that had used io_uring.
template <typename Call>
ssize_t Uninterrupted(const Call& call) {
  ssize_t count;
  do {
    count = call();
  } while (count < 0 && errno == EINTR);
  return count;
}

// What the sockets' functions call an address.
sockaddr* Generic(sockaddr_in& address) {
  return static_cast<sockaddr*>(static_cast<void*>(&address));
}

}  // namespace

absl::StatusOr<ServeSocket> ServeSocket::Connect(const std::string& address) {
  HPS_ASSIGN_OR_RETURN(const uint16_t port, PortOf(address));
  ServeSocket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(made.fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(made.fd_, SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof(kTimeout));
  setsockopt(made.fd_, SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof(kTimeout));
  sockaddr_in to = Loopback(port);
  if (made.fd_ < 0 || connect(made.fd_, Generic(to), sizeof(to)) != 0) return ConnectError(address);
  return made;
}

ServeSocket::~ServeSocket() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ServeSocket::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        Uninterrupted([&] { return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return absl::UnavailableError("bench serve: the server closed while it read");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status ServeSocket::Receive(std::vector<char>& buffer, size_t& received) {
  if (received == buffer.size()) buffer.resize(2 * buffer.size() + 1);
  if (buffer.size() > kReceivedBytesMax)
    return absl::InternalError("bench serve: an answer without an end");
  const ssize_t more = Uninterrupted(
      [&] { return recv(fd_, buffer.data() + received, buffer.size() - received, 0); });
  if (more <= 0) return absl::UnavailableError("bench serve: the server closed, or is stuck");
  received += static_cast<size_t>(more);
  return absl::OkStatus();
}

absl::StatusOr<int> ConnectWithoutWaiting(const std::string& address) {
  HPS_ASSIGN_OR_RETURN(const uint16_t port, PortOf(address));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return ConnectError(address);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in to = Loopback(port);
  if (connect(fd, Generic(to), sizeof(to)) == 0 || errno == EINPROGRESS) return fd;
  const absl::Status status = ConnectError(address);
  close(fd);
  return status;
}

absl::StatusOr<int> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  const bool bound = fd >= 0 && bind(fd, Generic(address), size) == 0 &&
                     getsockname(fd, Generic(address), &size) == 0;
  if (fd >= 0) close(fd);
  if (!bound) return absl::UnavailableError("bench serve: no port is free");
  return ntohs(address.sin_port);
}

}  // namespace hps::bench
