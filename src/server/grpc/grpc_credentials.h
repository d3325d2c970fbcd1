// TLS certificates of the gRPC server, which a running server can replace.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"
#include "hps/server_config.h"

namespace hps::server {

class CertificateStore {
 public:
  // Reads certificate, key and, if configured, the CA whose clients are let in.
  // Errors: NOT_FOUND (a file), INVALID_ARGUMENT (what does not parse or does not fit together).
  static absl::StatusOr<std::shared_ptr<CertificateStore>> Create(const ServerConfig& config);
  ~CertificateStore();

  // Reads the files again; connections made from now on use them. Errors: those of Create; the old
  // ones stay in use.
  absl::Status Reload();

  // Credentials that always serve what was read last. `store` must outlive the server.
  static std::shared_ptr<grpc::ServerCredentials> Credentials(
      const std::shared_ptr<CertificateStore>& store);

 private:
  struct Pem {
    std::string certificate;
    std::string key;
    std::string client_ca;
  };

  explicit CertificateStore(const ServerConfig& config);

  absl::StatusOr<Pem> Read() const;
  absl::Status Check(const Pem& pem) const;
  grpc_ssl_client_certificate_request_type client_request() const;
  static grpc_ssl_server_certificate_config* MakeConfig(const Pem& pem);

  // gRPC asks before each handshake whether there is something new.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* store, grpc_ssl_server_certificate_config** config);

  const ServerConfig config_;
  Mutex mutex_;
  Pem pem_ HPS_GUARDED_BY(mutex_);
  bool is_new_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps::server
