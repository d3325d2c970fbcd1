// A blocking TCP connection to a port of this machine.
//
// For one thread. Every wait ends after thirty seconds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps::bench {

class ServeSocket {
 public:
  // `address` is host:port, the host this machine.
  // Errors: INVALID_ARGUMENT, UNAVAILABLE.
  static absl::StatusOr<ServeSocket> Connect(const std::string& address);
  ServeSocket(ServeSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~ServeSocket();

  // Sends all of it. Errors: UNAVAILABLE.
  absl::Status Send(std::string_view bytes);
  // Reads at least one byte to buffer[received], which grows as needed, and adds to `received`.
  // Errors: UNAVAILABLE (the other side closed, or says nothing).
  absl::Status Receive(std::vector<char>& buffer, size_t& received);

 private:
  explicit ServeSocket(int fd) : fd_(fd) {}

  int fd_ = -1;
};

// A socket that connects to `address` and never blocks; its connection may still be under way.
// Errors: INVALID_ARGUMENT, UNAVAILABLE.
absl::StatusOr<int> ConnectWithoutWaiting(const std::string& address);

// A port that nobody listens on now.
absl::StatusOr<int> FreePort();

}  // namespace hps::bench
