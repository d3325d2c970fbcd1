// A non-blocking connection of bytes to a Redis server, over TCP or a unix socket.
//
// Nothing waits except the resolution of a host's name, which is that of the system; a number
// costs none. For one thread at a time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "l2_redis/redis_address.h"

namespace hps {

class RedisSocket {
 public:
  // Begins to connect, to the first of the host's addresses that lets it. Errors: UNAVAILABLE.
  static absl::StatusOr<RedisSocket> Connect(const RedisAddress& address);

  RedisSocket(RedisSocket&& other) noexcept;
  RedisSocket& operator=(RedisSocket&& other) = delete;
  ~RedisSocket();

  // For poll(). Until it is connected, it waits until it can be written.
  int descriptor() const { return descriptor_; }
  bool connected() const { return connected_; }

  // To be called when it can be written and is not connected. An address that refuses gives way to
  // the host's next one, with another descriptor. Errors: UNAVAILABLE, of the last address.
  absl::Status FinishConnect();

  // Bytes read or written; 0 = it would block. Errors: UNAVAILABLE; its end is one, too.
  absl::StatusOr<size_t> Read(char* to, size_t size);
  absl::StatusOr<size_t> Write(std::string_view bytes);

  // No answer is outstanding: whether the server has closed it, or has sent something.
  bool is_stale() const;

 private:
  struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t size = 0;
  };

  explicit RedisSocket(std::vector<SocketAddress> addresses) : untried_(std::move(addresses)) {}
  static absl::StatusOr<std::vector<SocketAddress>> Resolve(const RedisAddress& address);
  absl::Status ConnectToNext(int error);

  std::vector<SocketAddress> untried_;  // the next one is the last
  int descriptor_ = -1;
  bool connected_ = false;
};

}  // namespace hps
