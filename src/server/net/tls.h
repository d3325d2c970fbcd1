// TLS as the server uses it: a context made from files, and its end of each connection.
//
// OpenSSL stays behind this header, base/tls.h, base/client_socket.h and transport.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/tls.h"
#include "hps/server_config.h"

namespace hps::server {

// Thread-safe: connections may be made while it is in use elsewhere. Connections outlive it.
class TlsContext {
 public:
  // Reads certificate, key and, if configured, the CA whose clients are let in. TLS 1.2 and later.
  // `protocol`: ALPN's name of the protocol that the server speaks on these connections. A client
  // that names protocols must name it. The string must live forever.
  // Errors: INVALID_ARGUMENT (what does not parse or does not fit together), NOT_FOUND (a file).
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(const ServerConfig& config,
                                                            const char* protocol = "http/1.1");

  // The server's end of a new connection, for Transport::Open. Null when there is no memory.
  TlsConnection Accept() const;

  // When the certificate is valid: Unix times in seconds.
  int64_t not_before() const;
  int64_t not_after() const;

 private:
  explicit TlsContext(TlsContextOwner context) : context_(std::move(context)) {}

  const TlsContextOwner context_;
};

}  // namespace hps::server
