#include "server/net/tls.h"

#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"

namespace hps::server {
namespace {

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

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Create(const ServerConfig& config,
                                                               const char* protocol) {
  const TlsFiles files = {.prefix = "[server.security] tls_",
                          .certificate = config.tls_certificate,
                          .key = config.tls_key};
  HPS_ASSIGN_OR_RETURN(TlsContextOwner made, NewTlsContext(TLS_server_method()));
  SSL_CTX* const raw = made.get();
  std::unique_ptr<TlsContext> context(new TlsContext(std::move(made)));
  // Of TLS 1.2, what HTTP/2 allows (RFC 9113, 9.2.2): forward secrecy and AEAD.
  HPS_CHECK(SSL_CTX_set_cipher_list(raw, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1);
  SSL_CTX_set_options(raw, SSL_OP_CIPHER_SERVER_PREFERENCE);
  HPS_RETURN_IF_ERROR(ReadTlsCertificate(files, raw));
  // It is read only.
  SSL_CTX_set_alpn_select_cb(raw, SelectProtocol, const_cast<char*>(protocol));
  if (config.tls_client_ca.empty()) return context;
  HPS_RETURN_IF_ERROR(
      ReadTlsAuthority("[server.security] tls_client_ca", config.tls_client_ca, raw));
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

TlsConnection TlsContext::Accept() const {
  TlsConnection connection = NewTlsConnection(context_.get());
  if (connection != nullptr) SSL_set_accept_state(connection.get());
  return connection;
}

}  // namespace hps::server
