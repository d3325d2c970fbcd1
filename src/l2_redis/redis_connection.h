// One connection to a Redis server: sends what is queued, and passes the replies on.
//
// It begins with a handshake: AUTH if there is a password, READONLY if replicas are read, and INFO,
// which names the run of the server's process. For one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/client_socket.h"
#include "base/tls.h"
#include "l2_redis/redis_address.h"
#include "l2_redis/reply_reader.h"

namespace hps {

// How each connection begins. Files are read again for each, so that a password or a certificate
// may change.
struct RedisCredentials {
  std::string user;             // empty = the server's default user
  std::string password_file;    // empty = no AUTH
  std::optional<TlsFiles> tls;  // nullopt = without TLS
  std::string tls_server_name;  // for which the server's certificate is; empty = its host
  bool reads_replicas = false;  // sends READONLY, without which a replica answers no reads
};

// The TLS of a new connection to `host`, if the credentials have any, else null. Errors:
// FAILED_PRECONDITION, with the setting and the file.
absl::StatusOr<TlsConnection> NewRedisTls(const RedisCredentials& credentials,
                                          const std::string& host);

class RedisConnection {
 public:
  // Begins to connect. Errors: UNAVAILABLE, also without the password; those of NewRedisTls.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Begin(
      const RedisAddress& address, const RedisCredentials& credentials);

  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  int descriptor() const { return socket_->descriptor(); }
  // What to wait for, as in poll().
  short events() const;

  // What may be the reason if nothing comes; empty = nothing is known.
  std::string_view hint() const {
    return socket_->is_in_tls_handshake() ? " to the handshake of TLS: does the server speak TLS?"
                                          : "";
  }

  // The handshake is done.
  bool ready() const { return ready_; }
  // Of the server's process; a restart changes it. REQUIRES: ready().
  const std::string& run_id() const { return run_id_; }

  // REQUIRES: ready(). The bytes are sent by Flush and Advance.
  void Queue(std::string_view bytes) { out_.append(bytes); }

  // Does what it can without waiting. Replies after the handshake go to `sink`. Errors:
  // UNAVAILABLE, DATA_LOSS (no RESP2), PERMISSION_DENIED (AUTH), those of
  // ClientSocket::FinishConnect; it can't be used any more.
  absl::Status Advance(ReplySink& sink);

  // Sends what it can without waiting. Errors: UNAVAILABLE.
  absl::Status Flush();

  // While nothing is outstanding: whether it must not be used any more.
  bool is_stale() const { return socket_->is_stale(); }

 private:
  RedisConnection(std::unique_ptr<ClientSocket> socket, std::string handshake,
                  size_t handshake_replies);

  absl::Status Receive(ReplySink& sink);
  absl::Status FinishHandshake();

  const std::unique_ptr<ClientSocket> socket_;
  ReplyReader reader_;
  std::string out_;
  size_t out_sent_ = 0;
  const size_t handshake_replies_;
  ReplyTreeSink handshake_;
  bool ready_ = false;
  std::string run_id_;
};

}  // namespace hps
