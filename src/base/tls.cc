#include "base/tls.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "openssl/x509v3.h"

namespace hps {
namespace {

// What OpenSSL has to say, without file names or keys; clears it.
std::string Reason() {
  const char* const text = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return text == nullptr ? "unknown reason" : text;
}

// A pipe that no program writes to would be waited for without end.
absl::Status CheckReadable(const std::string& setting, const std::string& path) {
  const std::string file = absl::StrCat(setting, " = ", path);
  struct stat info {};
  if (access(path.c_str(), R_OK) != 0 || stat(path.c_str(), &info) != 0)
    return absl::NotFoundError(absl::StrCat(file, ": ", std::strerror(errno)));
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file, " is not a regular file"));
}

absl::Status Wrong(const std::string& setting, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(setting, " = ", path, ": ", Reason()));
}

int DescriptorOf(BIO* bio) { return *static_cast<const int*>(BIO_get_data(bio)); }

int WriteSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(DescriptorOf(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = recv(DescriptorOf(bio), data, static_cast<size_t>(size), 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hps socket");
    HPS_CHECK(made != nullptr);
    BIO_meth_set_write(made, WriteSocket);
    BIO_meth_set_read(made, ReadSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

// The certificate must be for this host; a name is also sent, for servers with several ones.
bool SetHost(const std::string& host, SSL* connection) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(connection);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return true;  // a number
  ERR_clear_error();
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  std::string name = host;  // SSL_set_tlsext_host_name is a macro with a cast of C
  return SSL_set1_host(connection, host.c_str()) == 1 &&
         SSL_ctrl(connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                  name.data()) == 1;
}

}  // namespace

void FreeTls::operator()(ssl_st* connection) const { SSL_free(connection); }
void FreeTls::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

absl::StatusOr<TlsContextOwner> NewTlsContext(const ssl_method_st* method) {
  ERR_clear_error();
  TlsContextOwner context(SSL_CTX_new(method));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  return context;
}

absl::Status ReadTlsCertificate(const TlsFiles& files, ssl_ctx_st* context) {
  const std::string certificate = absl::StrCat(files.prefix, "certificate");
  const std::string key = absl::StrCat(files.prefix, "key");
  HPS_RETURN_IF_ERROR(CheckReadable(certificate, files.certificate));
  HPS_RETURN_IF_ERROR(CheckReadable(key, files.key));
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return Wrong(certificate, files.certificate);
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return Wrong(key, files.key);
  }
  return absl::OkStatus();
}

absl::Status ReadTlsAuthority(const std::string& setting, const std::string& path,
                              ssl_ctx_st* context) {
  HPS_RETURN_IF_ERROR(CheckReadable(setting, path));
  if (SSL_CTX_load_verify_file(context, path.c_str()) != 1) return Wrong(setting, path);
  return absl::OkStatus();
}

TlsConnection NewTlsConnection(ssl_ctx_st* context) {
  TlsConnection connection(SSL_new(context));
  BIO* const bio = connection == nullptr ? nullptr : BIO_new(SocketMethod());
  if (bio == nullptr) return nullptr;
  SSL_set_bio(connection.get(), bio, bio);
  return connection;
}

void SetTlsSocket(ssl_st* connection, const int* descriptor) {
  BIO* const bio = SSL_get_rbio(connection);
  BIO_set_data(bio, const_cast<int*>(descriptor));  // it is read only
  BIO_set_init(bio, 1);
}

absl::StatusOr<TlsConnection> NewTlsClient(const TlsFiles& files, const std::string& host) {
  HPS_ASSIGN_OR_RETURN(const TlsContextOwner context, NewTlsContext(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (files.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else {
    HPS_RETURN_IF_ERROR(
        ReadTlsAuthority(absl::StrCat(files.prefix, "ca"), files.ca, context.get()));
  }
  if (!files.certificate.empty()) HPS_RETURN_IF_ERROR(ReadTlsCertificate(files, context.get()));
  TlsConnection connection = NewTlsConnection(context.get());
  if (connection == nullptr || !SetHost(host, connection.get()))
    return absl::ResourceExhaustedError("no memory for a TLS connection");
  SSL_set_connect_state(connection.get());
  return connection;
}

absl::Status TlsClientError(const ssl_st* connection) {
  const unsigned long error = ERR_peek_last_error();
  const std::string reason = absl::StrCat("TLS: ", Reason());
  const long verified = SSL_get_verify_result(connection);
  if (verified != X509_V_OK) {
    return absl::UnauthenticatedError(absl::StrCat("TLS: the server's certificate is not trusted: ",
                                                   X509_verify_cert_error_string(verified)));
  }
  if (error == 0) return absl::UnavailableError("the server closed the connection, or it broke");
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return absl::UnavailableError(reason);
  const int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
  if (alert == SSL_AD_INTERNAL_ERROR) return absl::UnavailableError(reason);
  if (alert >= 0) return absl::UnauthenticatedError(reason);
  const bool is_no_tls = ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER;
  return absl::InvalidArgumentError(
      absl::StrCat(reason, is_no_tls ? ": does the server speak TLS?" : ""));
}

}  // namespace hps
