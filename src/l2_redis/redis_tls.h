// TLS over a connected socket, for a client that verifies the server.
//
// The files are read again for each connection, so that certificates may be renewed. For one thread
// at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct ssl_st;
struct ssl_ctx_st;

namespace hps {

// As the settings [l2.redis] tls_*.
struct RedisTlsFiles {
  bool enabled = false;
  std::string ca;           // empty = what the system trusts
  std::string certificate;  // of this client; empty = none
  std::string key;
  std::string server_name;  // empty = the host of the server's address
};

struct FreeRedisTls {
  void operator()(ssl_st* connection) const;
  void operator()(ssl_ctx_st* context) const;
};
using RedisTlsContext = std::unique_ptr<ssl_ctx_st, FreeRedisTls>;

// Errors: FAILED_PRECONDITION, with the setting and the file.
absl::StatusOr<RedisTlsContext> ReadRedisTlsFiles(const RedisTlsFiles& files);

class RedisTls {
 public:
  // `host` is what the server's certificate must be for, unless the files name another one: a name
  // or a number. Errors: those of ReadRedisTlsFiles.
  static absl::StatusOr<std::unique_ptr<RedisTls>> Create(const RedisTlsFiles& files,
                                                          const std::string& host);

  // Takes the socket, once it is connected. Before, nothing else may be called.
  void Begin(int descriptor);

  // Does what it can of the handshake without waiting. Errors: UNAUTHENTICATED (the server's
  // certificate is not accepted), UNAVAILABLE.
  absl::Status Handshake();
  bool is_done() const { return is_done_; }

  // As RedisSocket's.
  absl::StatusOr<size_t> Read(char* to, size_t size);
  absl::StatusOr<size_t> Write(std::string_view bytes);

  // What poll() has to wait for before the last call is worth repeating; 0 = what the caller wants.
  short awaited() const { return awaited_; }
  // Bytes have been read from the socket and not been asked for.
  bool has_bytes() const;

 private:
  explicit RedisTls(std::unique_ptr<ssl_st, FreeRedisTls> connection)
      : connection_(std::move(connection)) {}

  // 0: it would block.
  absl::StatusOr<size_t> ResultOf(int result, size_t count);
  absl::Status Error() const;

  const std::unique_ptr<ssl_st, FreeRedisTls> connection_;
  int descriptor_ = -1;
  bool is_done_ = false;
  short awaited_ = 0;
};

}  // namespace hps
