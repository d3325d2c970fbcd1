#include "server/net/tls.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"

namespace hps::server {
namespace {

// What OpenSSL has to say, without file names or keys; clears it.
std::string Reason() {
  const char* const text = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return text == nullptr ? "unknown reason" : text;
}

// A pipe that nobody writes to would be waited for without end.
absl::Status CheckReadable(const std::string& path, const char* setting) {
  const std::string file = absl::StrCat("[server.security] ", setting, ": ", path);
  struct stat info {};
  if (access(path.c_str(), R_OK) != 0 || stat(path.c_str(), &info) != 0)
    return absl::NotFoundError(absl::StrCat(file, " can't be read"));
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file, " is not a regular file"));
}

absl::Status Wrong(const char* setting) {
  return absl::InvalidArgumentError(absl::StrCat("[server.security] ", setting, ": ", Reason()));
}

// A BIO over a socket that, other than OpenSSL's own, never raises SIGPIPE: a client that vanishes
// is its own connection's error only. The socket belongs to the transport.
int WriteSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = *static_cast<const int*>(BIO_get_data(bio));
  const ssize_t sent = send(fd, data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = *static_cast<const int*>(BIO_get_data(bio));
  const ssize_t received = recv(fd, data, static_cast<size_t>(size), 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int CreateSocket(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

int DestroySocket(BIO* bio) {
  const std::unique_ptr<int> fd(static_cast<int*>(BIO_get_data(bio)));
  BIO_set_data(bio, nullptr);
  return 1;
}

const BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hps socket");
    HPS_CHECK(made != nullptr);
    BIO_meth_set_write(made, WriteSocket);
    BIO_meth_set_read(made, ReadSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    BIO_meth_set_create(made, CreateSocket);
    BIO_meth_set_destroy(made, DestroySocket);
    return made;
  }();
  return method;
}

// `offered`: names, each behind its length.
int SelectProtocol(SSL*, const unsigned char** selected, unsigned char* selected_bytes,
                   const unsigned char* offered, unsigned offered_bytes, void* wanted) {
  const std::string_view protocol = static_cast<const char*>(wanted);
  for (unsigned at = 0; at < offered_bytes && offered[at] < offered_bytes - at;
       at += 1 + offered[at]) {
    const std::span<const unsigned char> name(offered + at + 1, offered[at]);
    if (AsText(std::as_bytes(name)) != protocol) continue;
    *selected = name.data();
    *selected_bytes = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? int64_t{timegm(&parts)} : 0;
}

}  // namespace

void FreeTls::operator()(ssl_st* connection) const { SSL_free(connection); }
void FreeTls::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Create(const ServerConfig& config,
                                                               const char* protocol) {
  HPS_RETURN_IF_ERROR(CheckReadable(config.tls_certificate, "tls_certificate"));
  HPS_RETURN_IF_ERROR(CheckReadable(config.tls_key, "tls_key"));
  std::unique_ptr<TlsContext> context(new TlsContext(SSL_CTX_new(TLS_server_method())));
  SSL_CTX* const raw = context->context_.get();
  if (raw == nullptr) return absl::ResourceExhaustedError("no memory for a TLS context");
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // Of TLS 1.2, what HTTP/2 allows (RFC 9113, 9.2.2): forward secrecy and AEAD.
  HPS_CHECK(SSL_CTX_set_cipher_list(raw, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  // A key with a pass phrase is refused: nobody is there to be asked for it.
  SSL_CTX_set_default_passwd_cb(raw, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(raw, config.tls_certificate.c_str()) != 1) {
    return Wrong("tls_certificate");
  }
  if (SSL_CTX_use_PrivateKey_file(raw, config.tls_key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(raw) != 1) {
    return Wrong("tls_key");
  }
  // It is read only.
  SSL_CTX_set_alpn_select_cb(raw, SelectProtocol, const_cast<char*>(protocol));
  if (config.tls_client_ca.empty()) return context;
  HPS_RETURN_IF_ERROR(CheckReadable(config.tls_client_ca, "tls_client_ca"));
  if (SSL_CTX_load_verify_file(raw, config.tls_client_ca.c_str()) != 1) {
    return Wrong("tls_client_ca");
  }
  SSL_CTX_set_client_CA_list(raw, SSL_load_client_CA_file(config.tls_client_ca.c_str()));
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // A session of a client with a certificate may only be resumed with the same requirement.
  static constexpr unsigned char kSessionContext[] = "hps";
  SSL_CTX_set_session_id_context(raw, kSessionContext, sizeof(kSessionContext) - 1);
  return context;
}

int64_t TlsContext::not_before() const {
  return UnixSeconds(X509_get0_notBefore(SSL_CTX_get0_certificate(context_.get())));
}

int64_t TlsContext::not_after() const {
  return UnixSeconds(X509_get0_notAfter(SSL_CTX_get0_certificate(context_.get())));
}

TlsConnection TlsContext::Accept(int fd) const {
  TlsConnection connection(SSL_new(context_.get()));
  auto owned = std::make_unique<int>(fd);
  BIO* const bio = connection == nullptr ? nullptr : BIO_new(SocketMethod());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, owned.release());
  SSL_set_bio(connection.get(), bio, bio);
  SSL_set_accept_state(connection.get());
  return connection;
}

}  // namespace hps::server
