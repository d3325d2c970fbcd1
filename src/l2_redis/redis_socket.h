// A non-blocking connection of bytes to a Redis server, over TCP, with TLS or without, or over a
// unix socket.
//
// Nothing waits except the resolution of a host's name, which is that of the system; a number
// costs none. For one thread at a time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "l2_redis/redis_address.h"
#include "l2_redis/redis_tls.h"

namespace hps {

class RedisSocket {
 public:
  // Begins to connect, to the first of the host's addresses that lets it. Errors: UNAVAILABLE,
  // those of ReadRedisTlsFiles.
  static absl::StatusOr<RedisSocket> Connect(const RedisAddress& address,
                                             const RedisTlsFiles& tls_files);

  // For poll(): the events to wait for if the caller waits for `wanted`. Until the socket is open,
  // these are `wanted`; the caller has bytes to write then, so `wanted` includes POLLOUT.
  int descriptor() const { return descriptor_.number(); }
  short events(short wanted) const;
  // With TLS: its handshake is done, too.
  bool connected() const { return is_open_ && (tls_ == nullptr || tls_->is_done()); }

  bool is_in_tls_handshake() const { return is_open_ && tls_ != nullptr && !tls_->is_done(); }

  // To be called when it can be written and is not connected. An address that refuses gives way to
  // the host's next one, with another descriptor. Errors: UNAVAILABLE, of the last address; those
  // of RedisTls::Handshake.
  absl::Status FinishConnect();

  // Bytes read or written; 0 = it would block. Errors: UNAVAILABLE; its end is one, too.
  absl::StatusOr<size_t> Read(char* to, size_t size);
  absl::StatusOr<size_t> Write(std::string_view bytes);
  // After a Read of `count` bytes where `size` were wanted: whether poll() tells of what is left.
  bool is_drained(size_t count, size_t size) const { return tls_ == nullptr && count < size; }

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
  absl::Status FinishOpen();

  std::vector<SocketAddress> untried_;  // the next one is the last
  Descriptor descriptor_;
  bool is_open_ = false;
  std::unique_ptr<RedisTls> tls_;  // null: without
};

}  // namespace hps
