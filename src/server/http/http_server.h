// The HTTP server.
//
// StartHttpServer (server/core/protocol_server.h) makes one.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/core/protocol_server.h"
#include "server/net/connection_server.h"

namespace hps::server {

class HttpServer final : public ConnectionServer {
 public:
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ProtocolParts& parts,
                                                           const std::string& address,
                                                           HttpRole role);
  ~HttpServer() override;

  HttpRole role() const { return role_; }

 private:
  HttpServer(const ProtocolParts& parts, HttpRole role);

  std::unique_ptr<ServedConnection> NewConnection() override;
  void OnRefusedConnection(int fd) override;

  const HttpRole role_;
};

}  // namespace hps::server
