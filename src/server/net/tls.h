// TLS as the server uses it: a context made from files, and the two ends of a connection's bytes.
//
// OpenSSL stays behind this header and transport.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hps/server_config.h"

struct ssl_ctx_st;
struct ssl_st;

namespace hps::server {

struct FreeTls {
  void operator()(ssl_st* connection) const;
  void operator()(ssl_ctx_st* context) const;
};
using TlsConnection = std::unique_ptr<ssl_st, FreeTls>;

// Thread-safe: connections may be made while it is in use elsewhere. Connections outlive it.
class TlsContext {
 public:
  // Reads certificate, key and, if configured, the CA whose clients are let in. TLS 1.2 and later.
  // `protocol`: ALPN's name of the protocol that the server speaks on these connections. A client
  // that names protocols must name it. The string must live forever.
  // Errors: INVALID_ARGUMENT (what does not parse or does not fit together), NOT_FOUND (a file).
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(const ServerConfig& config,
                                                            const char* protocol = "http/1.1");

  // The server's end of a new connection over the socket `fd`. Null when there is no memory.
  TlsConnection Accept(int fd) const;

  // When the certificate is valid: Unix times in seconds.
  int64_t not_before() const;
  int64_t not_after() const;

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

  const std::unique_ptr<ssl_ctx_st, FreeTls> context_;
};

}  // namespace hps::server
