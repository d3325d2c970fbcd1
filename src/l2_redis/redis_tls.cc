#include "l2_redis/redis_tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// OpenSSL's reason for its last error; clears it.
std::string Reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* const text = ERR_reason_error_string(error);
  ERR_clear_error();
  return text == nullptr ? "unknown reason" : text;
}

absl::Status FileError(const char* setting, const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("l2.redis.", setting, " = ", path, ": ", why));
}

// A pipe would be waited for without end.
absl::Status CheckReadable(const char* setting, const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || access(path.c_str(), R_OK) != 0)
    return FileError(setting, path, "expected a regular file that can be read");
  return absl::OkStatus();
}

absl::Status ReadCertificate(const RedisTlsFiles& files, SSL_CTX* context) {
  HPS_RETURN_IF_ERROR(CheckReadable("tls_certificate", files.certificate));
  HPS_RETURN_IF_ERROR(CheckReadable("tls_key", files.key));
  // A key with a pass phrase is refused: nobody is there to be asked for it.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return FileError("tls_certificate", files.certificate, Reason());
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return FileError("tls_key", files.key, Reason());
  }
  return absl::OkStatus();
}

// A BIO over a socket that, other than OpenSSL's own, never raises SIGPIPE: a server that vanishes
// is its own connection's error only. The socket belongs to the caller.
int WriteSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int descriptor = *static_cast<const int*>(BIO_get_data(bio));
  const ssize_t sent = send(descriptor, data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int descriptor = *static_cast<const int*>(BIO_get_data(bio));
  const ssize_t received = recv(descriptor, data, static_cast<size_t>(size), 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "redis socket");
    HPS_CHECK(made != nullptr);
    BIO_meth_set_write(made, WriteSocket);
    BIO_meth_set_read(made, ReadSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

bool IsNumber(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  return inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

// The certificate must be for this host; a name is also sent, for servers with several ones.
bool SetHost(SSL* connection, const std::string& host) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(connection);
  if (IsNumber(host)) return X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1;
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  std::string name = host;  // SSL_set_tlsext_host_name is a macro with a cast of C
  return X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size()) == 1 &&
         SSL_ctrl(connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                  name.data()) == 1;
}

}  // namespace

void FreeRedisTls::operator()(ssl_st* connection) const { SSL_free(connection); }
void FreeRedisTls::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

absl::StatusOr<RedisTlsContext> ReadRedisTlsFiles(const RedisTlsFiles& files) {
  RedisTlsContext context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for a TLS context");
  SSL_CTX* const raw = context.get();
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  if (files.ca.empty()) {
    SSL_CTX_set_default_verify_paths(raw);
  } else {
    HPS_RETURN_IF_ERROR(CheckReadable("tls_ca", files.ca));
    if (SSL_CTX_load_verify_file(raw, files.ca.c_str()) != 1)
      return FileError("tls_ca", files.ca, Reason());
  }
  if (!files.certificate.empty()) HPS_RETURN_IF_ERROR(ReadCertificate(files, raw));
  return context;
}

absl::StatusOr<std::unique_ptr<RedisTls>> RedisTls::Create(const RedisTlsFiles& files,
                                                           const std::string& host) {
  HPS_ASSIGN_OR_RETURN(const RedisTlsContext context, ReadRedisTlsFiles(files));
  std::unique_ptr<ssl_st, FreeRedisTls> connection(SSL_new(context.get()));
  const std::string& name = files.server_name.empty() ? host : files.server_name;
  if (connection == nullptr || !SetHost(connection.get(), name))
    return absl::ResourceExhaustedError("no memory for a TLS connection");
  SSL_set_connect_state(connection.get());
  return std::unique_ptr<RedisTls>(new RedisTls(std::move(connection)));
}

void RedisTls::Begin(int descriptor) {
  descriptor_ = descriptor;
  BIO* const bio = BIO_new(SocketMethod());
  HPS_CHECK(bio != nullptr);
  BIO_set_data(bio, &descriptor_);
  BIO_set_init(bio, 1);
  SSL_set_bio(connection_.get(), bio, bio);
}

absl::Status RedisTls::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(connection_.get());
  HPS_RETURN_IF_ERROR(ResultOf(result, 0).status());
  is_done_ = result == 1;
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisTls::Read(char* to, size_t size) {
  size_t count = 0;
  ERR_clear_error();
  const int result = SSL_read_ex(connection_.get(), to, size, &count);
  return ResultOf(result, count);
}

absl::StatusOr<size_t> RedisTls::Write(std::string_view bytes) {
  size_t count = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(connection_.get(), bytes.data(), bytes.size(), &count);
  return ResultOf(result, count);
}

bool RedisTls::has_bytes() const { return SSL_has_pending(connection_.get()) == 1; }

absl::StatusOr<size_t> RedisTls::ResultOf(int result, size_t count) {
  awaited_ = 0;
  if (result == 1) return count;
  switch (SSL_get_error(connection_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      awaited_ = POLLIN;
      return 0;
    case SSL_ERROR_WANT_WRITE:
      awaited_ = POLLOUT;
      return 0;
    case SSL_ERROR_ZERO_RETURN:
      return absl::UnavailableError("the server closed the connection");
    default:
      return Error();
  }
}

absl::Status RedisTls::Error() const {
  const long verified = SSL_get_verify_result(connection_.get());
  if (verified != X509_V_OK) {
    ERR_clear_error();
    return absl::UnauthenticatedError(
        absl::StrCat("TLS: the server's certificate is not accepted: ",
                     X509_verify_cert_error_string(verified)));
  }
  const unsigned long reason = ERR_peek_last_error();
  const bool is_no_tls =
      ERR_GET_LIB(reason) == ERR_LIB_SSL && ERR_GET_REASON(reason) == SSL_R_WRONG_VERSION_NUMBER;
  const bool is_end = ERR_GET_LIB(reason) == ERR_LIB_SSL &&
                      ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  const std::string why = Reason();
  if (is_no_tls) return absl::UnavailableError("TLS: the server does not speak TLS");
  if (is_end || reason == 0)
    return absl::UnavailableError("the server closed the connection, or it broke");
  return absl::UnavailableError(absl::StrCat("TLS: ", why));
}

}  // namespace hps
