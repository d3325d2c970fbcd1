// The HTTP server.
//
// StartHttpServer (server/core/protocol_server.h) makes one.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
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

  // Whether a request for this host, or for none (empty), is answered (server/http/host.h).
  bool AnswersTo(std::string_view host) const;

  // Runs `task`, which encodes a long answer, on a thread that no lookup and no other connection
  // waits for. Errors: those of Executor::Post; then it is to be done in place.
  absl::Status PostEncoding(Task* task);

  // Runs `task`, which changes rows, on a thread that serves no lookups. Errors:
  // RESOURCE_EXHAUSTED if too many changes wait.
  absl::Status PostUpdate(Task* task);

 private:
  HttpServer(const ProtocolParts& parts, HttpRole role);

  std::unique_ptr<ServedConnection> NewConnection() override;
  void OnRefusedConnection(int fd) override;

  const HttpRole role_;
  Mutex encoders_mutex_;                  // held in Post
  std::unique_ptr<WorkerPool> encoders_;  // null: for metrics only
  std::unique_ptr<WorkerPool> updaters_;  // null: [server.security] updates is off
};

}  // namespace hps::server
