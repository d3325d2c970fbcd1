#include "cli/client/tls_client.h"

#include <array>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "openssl/x509v3.h"

namespace hps::cli {
namespace {

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

// What OpenSSL has to say, of the system's errors what the system says; clears it.
std::string Reason() {
  const auto first = ERR_peek_error();
  const auto error = ERR_SYSTEM_ERROR(first) ? first : ERR_peek_last_error();
  if (ERR_SYSTEM_ERROR(error)) {
    ERR_clear_error();
    return std::generic_category().message(ERR_GET_REASON(error));
  }
  const char* const text = ERR_reason_error_string(error);
  ERR_clear_error();
  return text == nullptr ? "unknown reason" : text;
}

absl::Status WrongFile(const char* what, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(what, " '", path, "': ", Reason()));
}

absl::Status SetTrust(const TlsTrust& trust, SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  // A key with a pass phrase is refused, not asked for.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  if (trust.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_file(context, trust.ca_file.c_str()) != 1) {
    return WrongFile("the authority", trust.ca_file);
  }
  if (trust.certificate_file.empty()) return absl::OkStatus();
  if (SSL_CTX_use_certificate_chain_file(context, trust.certificate_file.c_str()) != 1) {
    return WrongFile("the certificate", trust.certificate_file);
  }
  if (SSL_CTX_use_PrivateKey_file(context, trust.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return WrongFile("the key", trust.key_file);
  }
  return absl::OkStatus();
}

bool SetHost(const std::string& host, SSL* connection) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(connection);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return true;  // an address
  ERR_clear_error();
  if (SSL_set1_host(connection, host.c_str()) != 1) return false;
  // What the macro SSL_set_tlsext_host_name does, but for its cast.
  std::string name = host;
  return SSL_ctrl(connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                  name.data()) == 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsClient>> TlsClient::Create(const std::string& host,
                                                             const TlsTrust& trust,
                                                             std::string request) {
  std::unique_ptr<TlsClient> client(new TlsClient(std::move(request)));
  ERR_clear_error();
  const Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  HPS_RETURN_IF_ERROR(SetTrust(trust, context.get()));
  client->connection_ = SSL_new(context.get());
  client->received_ = BIO_new(BIO_s_mem());
  client->to_send_ = BIO_new(BIO_s_mem());
  if (client->connection_ == nullptr || client->received_ == nullptr ||
      client->to_send_ == nullptr || !SetHost(host, client->connection_)) {
    if (client->connection_ == nullptr) {
      BIO_free(client->received_);
      BIO_free(client->to_send_);
    } else {
      SSL_set_bio(client->connection_, client->received_, client->to_send_);
    }
    return absl::ResourceExhaustedError("no memory for TLS");
  }
  SSL_set_bio(client->connection_, client->received_, client->to_send_);
  SSL_set_connect_state(client->connection_);
  HPS_RETURN_IF_ERROR(client->Advance());
  return client;
}

TlsClient::~TlsClient() { SSL_free(connection_); }

std::string TlsClient::TakeOutput() {
  std::string output(BIO_ctrl_pending(to_send_), '\0');
  if (!output.empty()) BIO_read(to_send_, output.data(), static_cast<int>(output.size()));
  return output;
}

absl::Status TlsClient::Feed(std::string_view received) {
  if (BIO_write(received_, received.data(), static_cast<int>(received.size())) !=
      static_cast<int>(received.size())) {
    return absl::ResourceExhaustedError("no memory for TLS");
  }
  return Advance();
}

absl::Status TlsClient::Advance() {
  ERR_clear_error();
  if (!is_trusted_) {
    const int result = SSL_do_handshake(connection_);
    if (result != 1) return Wrong(result);
    is_trusted_ = true;
    const int sent = SSL_write(connection_, request_.data(), static_cast<int>(request_.size()));
    if (sent <= 0) return Wrong(sent);
  }
  std::array<char, 16 << 10> buffer;
  while (true) {
    const int read = SSL_read(connection_, buffer.data(), static_cast<int>(buffer.size()));
    if (read <= 0) {
      has_ended_ = SSL_get_error(connection_, read) == SSL_ERROR_ZERO_RETURN;
      return has_ended_ ? absl::OkStatus() : Wrong(read);
    }
    answer_.append(buffer.data(), static_cast<size_t>(read));
  }
}

// OK where it only needs more of what the server sends.
absl::Status TlsClient::Wrong(int result) const {
  if (SSL_get_error(connection_, result) == SSL_ERROR_WANT_READ) return absl::OkStatus();
  const long verified = SSL_get_verify_result(connection_);
  if (verified != X509_V_OK) {
    ERR_clear_error();
    return absl::UnauthenticatedError(absl::StrCat("the server's certificate is not trusted: ",
                                                   X509_verify_cert_error_string(verified)));
  }
  const unsigned long error = ERR_peek_last_error();
  const bool is_alert = ERR_GET_REASON(error) >= SSL_AD_REASON_OFFSET;
  const std::string reason = absl::StrCat("TLS: ", Reason());
  return is_alert ? absl::UnauthenticatedError(reason) : absl::InvalidArgumentError(reason);
}

}  // namespace hps::cli
