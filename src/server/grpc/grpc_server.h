// The gRPC server: the listener, the threads, the connections and their calls, certificates and the
// token.
//
// StartGrpcServer (server/core/protocol_server.h) makes one.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "server/core/protocol_server.h"
#include "server/core/token_guard.h"
#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_host.h"
#include "server/grpc/grpc_stream.h"
#include "server/net/event_loop.h"
#include "server/net/listener.h"
#include "server/net/tls.h"

namespace hps::server {

class GrpcServer final : public ProtocolServer, private GrpcHost, private EventLoop::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const ProtocolParts& parts,
                                                           const std::string& address);
  ~GrpcServer() override;

  const std::string& address() const override { return listener_->address(); }
  absl::Status Drain(Deadline deadline) override;
  absl::Status Reopen() override;

 private:
  GrpcServer(const ProtocolParts& parts, bool has_token);

  // GrpcHost
  GrpcShared& shared() override { return shared_; }
  bool Admits(std::string_view authorization) const override;
  absl::Status Watch(GrpcConnection& connection, int fd) override;
  void Wake(GrpcConnection& connection, int fd) override;
  GrpcStream* TakeStream() override;
  void ReturnStream(GrpcStream& stream) override;
  absl::Status PostSlow(Task* task) override { return slow_->Post(task); }
  void OnClosed(GrpcConnection& connection) override;

  // EventLoop::Handler
  void OnSocket(void* source, SocketEnd end, bool is_last) override;
  void OnAcceptable() override;
  void OnTick() override;
  bool DoLeft() override { return false; }

  void Accept(int fd);
  GrpcConnection* TakeConnection();
  void ActivateAll(uint32_t event);
  bool AwaitNoConnections(Deadline deadline);

  GrpcShared shared_;
  std::unique_ptr<Listener> listener_;

  mutable Mutex credentials_mutex_;
  std::shared_ptr<const TlsContext> tls_ HPS_GUARDED_BY(credentials_mutex_);  // null: no TLS
  std::shared_ptr<const TokenGuard> token_ HPS_GUARDED_BY(credentials_mutex_);

  mutable Mutex mutex_;
  CondVar none_open_;
  // Connections that exist, open or free to be opened again; they live as long as the server,
  // because an event of a closed socket may still be on its way to them.
  std::vector<std::unique_ptr<GrpcConnection>> connections_ HPS_GUARDED_BY(mutex_);
  std::vector<GrpcConnection*> free_ HPS_GUARDED_BY(mutex_);
  size_t open_count_ HPS_GUARDED_BY(mutex_) = 0;

  Mutex streams_mutex_;
  std::vector<std::unique_ptr<GrpcStream>> streams_ HPS_GUARDED_BY(streams_mutex_);
  std::vector<GrpcStream*> free_streams_ HPS_GUARDED_BY(streams_mutex_);

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<WorkerPool> slow_;
};

}  // namespace hps::server
