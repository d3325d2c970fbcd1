// A non-blocking connection of bytes to a server, over TCP, with TLS or without, or over a unix
// socket.
//
// Nothing waits except the resolution of a host's name, which is that of the system; a number
// costs none. For one thread at a time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tls.h"

namespace hps {

class ClientSocket {
 public:
  // Begins to connect, to the first of the host's addresses that lets it. Without a port, `host` is
  // the path of a unix socket. `tls` is NewTlsClient's, or null. Errors: UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<ClientSocket>> Connect(const std::string& host,
                                                               const std::string& port,
                                                               TlsConnection tls);

  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;
  ~ClientSocket();

  // For poll(): the events to wait for if the caller waits for `wanted`. Until the socket is open,
  // these are `wanted`; the caller has bytes to write then, so `wanted` includes POLLOUT.
  int descriptor() const { return descriptor_; }
  short events(short wanted) const;
  // With TLS: its handshake is done, too.
  bool connected() const { return state_ == State::kConnected; }
  bool is_in_tls_handshake() const { return state_ == State::kHandshake; }

  // To be called when it can be written and is not connected. An address that refuses gives way to
  // the host's next one, with another descriptor. Errors: UNAVAILABLE, of the last address; those
  // of TlsClientError.
  absl::Status FinishConnect();

  // Bytes read or written; 0 = it would block. Errors: UNAVAILABLE, also at the connection's end;
  // those of TlsClientError.
  absl::StatusOr<size_t> Read(char* to, size_t size);
  absl::StatusOr<size_t> Write(std::string_view bytes);
  // After a Read of `count` bytes where `size` were wanted: whether poll() tells of what is left.
  bool is_drained(size_t count, size_t size) const { return tls_ == nullptr && count < size; }

  // No answer is outstanding: whether the server has closed it, or has sent something.
  bool is_stale() const;

 private:
  enum class State : uint8_t { kConnecting, kHandshake, kConnected };
  struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t size = 0;
  };

  ClientSocket(std::vector<SocketAddress> addresses, TlsConnection tls);
  static absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host,
                                                            const std::string& port);
  absl::Status ConnectToNext(int error);
  absl::StatusOr<size_t> TlsResult(int result, size_t count);

  std::vector<SocketAddress> untried_;  // the next one is the last
  int descriptor_ = -1;
  State state_ = State::kConnecting;
  const TlsConnection tls_;  // null: without
  short awaited_ = 0;        // what poll() has to wait for before TLS can go on
};

}  // namespace hps
