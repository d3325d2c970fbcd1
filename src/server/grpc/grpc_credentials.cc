#include "server/grpc/grpc_credentials.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"

namespace hps::server {
namespace {

constexpr size_t kPemBytesMax = size_t{1} << 20;

absl::StatusOr<std::string> ReadPem(const char* setting, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat("[server.security] ", setting, " '", path, "' can't be read"));
  }
  if (text.view().size() > kPemBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("[server.security] ", setting, " '", path, "' is no PEM file: too large"));
  }
  return text.str();
}

// gRPC's C++ interface has no credentials whose certificates can be replaced; its C interface has.
class ReloadableCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadableCredentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  ~ReloadableCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<CertificateStore>> CertificateStore::Create(
    const ServerConfig& config) {
  std::shared_ptr<CertificateStore> store(new CertificateStore(config));
  HPS_RETURN_IF_ERROR(store->Reload());
  return store;
}

// The C interface works only while the library is initialized, which the C++ one does by itself.
CertificateStore::CertificateStore(const ServerConfig& config) : config_(config) { grpc_init(); }

CertificateStore::~CertificateStore() { grpc_shutdown(); }

absl::Status CertificateStore::Reload() {
  HPS_ASSIGN_OR_RETURN(Pem pem, Read());
  HPS_RETURN_IF_ERROR(Check(pem));
  MutexLock lock(mutex_);
  pem_ = std::move(pem);
  is_new_ = true;
  return absl::OkStatus();
}

absl::StatusOr<CertificateStore::Pem> CertificateStore::Read() const {
  Pem pem;
  HPS_ASSIGN_OR_RETURN(pem.certificate, ReadPem("tls_certificate", config_.tls_certificate));
  HPS_ASSIGN_OR_RETURN(pem.key, ReadPem("tls_key", config_.tls_key));
  if (!config_.tls_client_ca.empty()) {
    HPS_ASSIGN_OR_RETURN(pem.client_ca, ReadPem("tls_client_ca", config_.tls_client_ca));
  }
  return pem;
}

// gRPC says whether it takes certificates only when a server listens with them.
absl::Status CertificateStore::Check(const Pem& pem) const {
  grpc_ssl_server_credentials_options* const options =
      grpc_ssl_server_credentials_create_options_using_config(client_request(), MakeConfig(pem));
  grpc_server_credentials* const credentials =
      grpc_ssl_server_credentials_create_with_options(options);
  grpc_server* const server = grpc_server_create(nullptr, nullptr);
  grpc_completion_queue* const queue = grpc_completion_queue_create_for_pluck(nullptr);
  grpc_server_register_completion_queue(server, queue, nullptr);
  const int port = grpc_server_add_http2_port(server, "127.0.0.1:0", credentials);
  grpc_server_credentials_release(credentials);
  grpc_server_shutdown_and_notify(server, queue, nullptr);
  grpc_completion_queue_pluck(queue, nullptr, gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
  grpc_server_destroy(server);
  grpc_completion_queue_shutdown(queue);
  grpc_completion_queue_destroy(queue);
  if (port != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("[server.security] the certificate '", config_.tls_certificate, "', the key '",
                   config_.tls_key, "' or the client CA do not parse or do not fit together"));
}

grpc_ssl_client_certificate_request_type CertificateStore::client_request() const {
  return config_.tls_client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                       : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
}

grpc_ssl_server_certificate_config* CertificateStore::MakeConfig(const Pem& pem) {
  const grpc_ssl_pem_key_cert_pair pair = {pem.key.c_str(), pem.certificate.c_str()};
  // gRPC asserts that a fetched configuration has roots. They matter only to clients that are asked
  // for a certificate; without a CA nobody is.
  const std::string& roots = pem.client_ca.empty() ? pem.certificate : pem.client_ca;
  return grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
}

grpc_ssl_certificate_config_reload_status CertificateStore::Fetch(
    void* store, grpc_ssl_server_certificate_config** config) {
  auto& self = *static_cast<CertificateStore*>(store);
  MutexLock lock(self.mutex_);
  if (!self.is_new_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  self.is_new_ = false;
  *config = MakeConfig(self.pem_);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::shared_ptr<grpc::ServerCredentials> CertificateStore::Credentials(
    const std::shared_ptr<CertificateStore>& store) {
  return std::make_shared<ReloadableCredentials>(grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(store->client_request(),
                                                                      &Fetch, store.get())));
}

}  // namespace hps::server
