// The HTTP server: the listener, the threads, the connections, certificates and the token.
//
// StartHttpServer (server/core/protocol_server.h) makes one.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "server/core/protocol_server.h"
#include "server/core/token_guard.h"
#include "server/http/connection.h"
#include "server/http/connection_host.h"
#include "server/net/backlog.h"
#include "server/net/buffer_pool.h"
#include "server/net/event_loop.h"
#include "server/net/listener.h"
#include "server/net/tls.h"

namespace hps::server {

class HttpServer final : public ProtocolServer, private ConnectionHost, private EventLoop::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ProtocolParts& parts,
                                                           const std::string& address,
                                                           HttpRole role);
  ~HttpServer() override;

  const std::string& address() const override { return listener_->address(); }
  absl::Status Drain(Deadline deadline) override;
  absl::Status Reopen() override;

 private:
  HttpServer(const ProtocolParts& parts, HttpRole role);

  // ConnectionHost
  const ProtocolParts& parts() const override { return parts_; }
  HttpRole role() const override { return role_; }
  BufferPool& pool() override { return pool_; }
  bool draining() const override { return draining_.load(std::memory_order_relaxed); }
  bool Admits(std::string_view authorization, bool needs_token) const override;
  absl::Status Watch(Connection& connection, int fd) override;
  void Wake(Connection& connection, int fd) override;
  void NoteRefused() override { backlog_.NoteRefused(); }
  absl::Status PostSlow(Task* task) override { return slow_->Post(task); }
  void OnClosed(Connection& connection) override;

  // EventLoop::Handler
  void OnSocket(void* source, SocketEnd end, bool is_last) override;
  void OnAcceptable() override;
  void OnTick() override;
  bool DoLeft() override;

  // Metrics and probes wait for no look-up.
  bool HasRoom() const { return role_ == HttpRole::kMetricsOnly || parts_.inference->HasRoom(); }
  void Accept(int fd);
  void RefuseConnection(int fd);
  Connection* TakeConnection();
  void ActivateAll(uint32_t event);
  bool AwaitNoConnections(Deadline deadline);

  const ProtocolParts parts_;
  const HttpRole role_;
  BufferPool pool_;
  Backlog backlog_;
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> draining_ = false;

  mutable Mutex credentials_mutex_;
  std::shared_ptr<const TlsContext> tls_ HPS_GUARDED_BY(credentials_mutex_);  // null: no TLS
  std::shared_ptr<const TokenGuard> token_ HPS_GUARDED_BY(credentials_mutex_);

  mutable Mutex mutex_;
  CondVar none_open_;
  // Connections that exist, open or free to be opened again; they live as long as the server,
  // because an event of a closed socket may still be on its way to them.
  std::vector<std::unique_ptr<Connection>> connections_ HPS_GUARDED_BY(mutex_);
  std::vector<Connection*> free_ HPS_GUARDED_BY(mutex_);
  size_t open_count_ HPS_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<WorkerPool> slow_;
};

}  // namespace hps::server
