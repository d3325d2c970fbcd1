// What servers and clients with TLS have in common: contexts made from files, and connections over
// sockets. TLS 1.2 and later.
//
// OpenSSL's own BIO of a socket raises SIGPIPE when the other side has vanished; the connections
// here never do, so that this is the error of one connection only.
//
// Thread-safe. One connection is for one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct ssl_ctx_st;
struct ssl_method_st;
struct ssl_st;

namespace hps {

struct FreeTls {
  void operator()(ssl_st* connection) const;
  void operator()(ssl_ctx_st* context) const;
};
using TlsConnection = std::unique_ptr<ssl_st, FreeTls>;
using TlsContextOwner = std::unique_ptr<ssl_ctx_st, FreeTls>;

// PEM files.
struct TlsFiles {
  std::string prefix;       // of their settings in messages: "l2.redis.tls_" before "ca = PATH"
  std::string ca;           // who must have signed the certificate of the other side
  std::string certificate;  // of this side
  std::string key;
};

// Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<TlsContextOwner> NewTlsContext(const ssl_method_st* method);

// Each reads files into the context. A key with a pass phrase is refused, because no user is there
// to be asked for it. Errors, with setting and path: NOT_FOUND (can't be read), INVALID_ARGUMENT
// (no regular file, does not parse, or the key is not the certificate's).
absl::Status ReadTlsCertificate(const TlsFiles& files, ssl_ctx_st* context);
absl::Status ReadTlsAuthority(const std::string& setting, const std::string& path,
                              ssl_ctx_st* context);

// Null when there is no memory. The socket follows: SetTlsSocket.
TlsConnection NewTlsConnection(ssl_ctx_st* context);

// `descriptor` is read whenever the connection uses its socket, which the caller owns.
void SetTlsSocket(ssl_st* connection, const int* descriptor);

// The client's side of a new connection. The server must show a certificate for `host`, a name or a
// number, that the CA or, without one, an authority of the system has signed.
// Errors: RESOURCE_EXHAUSTED, those of the files.
absl::StatusOr<TlsConnection> NewTlsClient(const TlsFiles& files, const std::string& host);

// Why a client's connection failed. UNAUTHENTICATED: the server's certificate is not trusted, or
// the server has sent an alert, as it does if it does not trust this client. INVALID_ARGUMENT: the
// server's bytes are no TLS, or not as they should be. UNAVAILABLE: the connection ended, or one
// side had an error of its own.
absl::Status TlsClientError(const ssl_st* connection);

}  // namespace hps
