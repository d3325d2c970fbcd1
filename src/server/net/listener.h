// The listening socket: from "host:port" to accepted, non-blocking sockets.
//
// Not thread-safe but Accept, which is.
#pragma once

#include <netinet/in.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps::server {

// Whether an address is of this machine alone: 127.0.0.0/8, also mapped into IPv6, or ::1.
bool IsLoopback(const in_addr& address);
bool IsLoopback(const in6_addr& address);

class Listener {
 public:
  static constexpr int kNone = -1;    // no client waits any more
  static constexpr int kNoRoom = -2;  // no descriptor to take the next one: try later

  // `address`: "127.0.0.1:8000", "[::1]:8000", "host:0" (any free port).
  // Errors: INVALID_ARGUMENT (not such an address, no such host), UNAVAILABLE (in use).
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address);

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  const std::string& address() const { return address_; }  // with the port really taken
  // Whether only programs of this machine reach it.
  bool is_on_loopback() const { return is_on_loopback_; }
  int fd() const { return fd_; }

  // A socket, kNone or kNoRoom.
  int Accept();
  // Takes no more; those that wait are reset.
  void Close();

 private:
  Listener() = default;
  absl::Status Bind(const std::string& host, const std::string& port);

  int fd_ = -1;
  std::string address_;
  bool is_on_loopback_ = false;
};

}  // namespace hps::server
