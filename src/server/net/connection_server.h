// What the servers of HTTP and gRPC have in common: the listener, the threads, the connections and
// which of them is read next, certificates and the token.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "server/core/protocol_server.h"
#include "server/core/token_guard.h"
#include "server/net/backlog.h"
#include "server/net/buffer_pool.h"
#include "server/net/event_loop.h"
#include "server/net/listener.h"
#include "server/net/served_connection.h"
#include "server/net/tls.h"

namespace hps::server {

class ConnectionServer : public ProtocolServer, private EventLoop::Handler {
 public:
  const std::string& address() const override { return listener_->address(); }
  bool is_on_loopback() const { return listener_->is_on_loopback(); }
  absl::Status Drain(Deadline deadline) override;
  absl::Status Reopen() override;

  // ---- For its connections.

  const ProtocolParts& parts() const { return parts_; }
  BufferPool& pool() { return pool_; }
  bool draining() const { return draining_.load(std::memory_order_relaxed); }

  // Whether a request with this field (HTTP) or metadatum (gRPC) `authorization` may ask.
  bool Admits(std::string_view authorization) const;
  // Whether it may load, unload, refresh or change rows: with the administrator's token if there is
  // one, else with the other one. False if there is neither.
  bool AdmitsControl(std::string_view authorization) const;

  // From now on the connection hears of its socket. Errors: RESOURCE_EXHAUSTED.
  absl::Status Watch(ServedConnection& connection, int fd) { return loop_->Watch(fd, &connection); }
  // Has the connection driven by one of the server's own threads, soon.
  void Wake(ServedConnection& connection) {
    Leave(connection.waiting(), Backlog::Kind::kInProgress, RealClock().Now());
  }
  // This thread is about to look up, maybe for long: others come for what is left.
  void CallHelp();

  // Whether a request that is complete now may begin before all that wait.
  bool MayBegin() const {
    return MayHoldTurn() && HasRoom() && (backlog_.size() == 0 || !backlog_.is_overloaded());
  }
  // Lets the entry, which came at `since`, wait for its turn.
  void Leave(Backlog::Entry& entry, Backlog::Kind kind, TimePoint since);
  // Ends its wait. False: it does not wait, or its turn is on its way.
  bool Forget(Backlog::Entry& entry) { return backlog_.Remove(entry); }
  // A call holds its turn until its lookup begins. While as many calls as threads hold one, no
  // other request begins: otherwise a connection that another thread drives would get all turns.
  bool MayHoldTurn() const { return held_turns_.load() < options_.thread_count; }
  void HoldTurn() { held_turns_.fetch_add(1); }
  void ReleaseTurn() {
    held_turns_.fetch_sub(1);
    backlog_.WakeOne();
  }

  void CountRequest() {
    if (options_.is_counted) parts_.counters->CountRequest(options_.protocol);
  }
  // A request was not answered because the server has too much to do.
  void NoteRefused() { backlog_.NoteRefused(); }

  // Runs `task` where it may take its time. Errors: RESOURCE_EXHAUSTED, which is counted.
  absl::Status PostSlow(Task* task);

  // The connection has ended and may be opened again with another socket.
  void OnClosed(ServedConnection& connection);

 protected:
  struct Options {
    std::string name;  // of its threads, and in what Drain says
    Protocol protocol = Protocol::kHttp;
    const char* tls_protocol = "http/1.1";  // TlsContext::Create's
    size_t thread_count = 1;
    Duration tick_period{};
    bool is_counted = true;  // as a server of requests, in its connections and requests
    // Requests stay unread while there is no room to look them up. Off for a server of metrics
    // and probes, which need no room.
    bool leaves_unread = true;
    size_t request_bytes_min = 0;  // fewer bytes are not a request, and are read at once
  };

  ConnectionServer(const ProtocolParts& parts, Options options);

  // Reads the files, listens, and starts the threads.
  absl::Status Listen(const std::string& address);
  // To be called by the destructor of what inherits: nothing calls into it any more after that.
  void Stop();

  // A connection that is closed. May throw std::bad_alloc.
  virtual std::unique_ptr<ServedConnection> NewConnection() = 0;
  // The socket is beyond [server] connections_max, and about to be closed.
  virtual void OnRefusedConnection(int fd) = 0;

  // Time-outs are noticed at the next tick: this keeps that within a quarter of the shortest one.
  static Duration TickPeriodFor(Duration shortest_timeout);

 private:
  // EventLoop::Handler
  void OnSocket(void* source, SocketEnd end, bool is_last) override;
  void OnAcceptable() override;
  void OnTick() override;
  bool DoLeft() override;
  bool HasLeft() const override { return backlog_.size() > 0; }

  bool HasRoom() const { return !options_.leaves_unread || parts_.inference->HasRoom(); }
  void Accept(int fd);
  ServedConnection* TakeConnection();
  ServedConnection* ConnectionAt(size_t index);
  void ActivateAll(uint32_t event);
  bool AwaitNoConnections(Deadline deadline);
  void CountConnections(int64_t change) {
    if (options_.is_counted) parts_.counters->AddConnections(options_.protocol, change);
  }

  const ProtocolParts parts_;
  const Options options_;
  BufferPool pool_;
  Backlog backlog_;
  std::unique_ptr<Listener> listener_;
  std::atomic<size_t> held_turns_ = 0;
  std::atomic<bool> draining_ = false;

  // As the files had them when they were read last.
  struct {
    mutable Mutex mutex;
    std::shared_ptr<const TlsContext> tls HPS_GUARDED_BY(mutex);  // null: no TLS
    std::shared_ptr<const TokenGuard> token HPS_GUARDED_BY(mutex);
    // Null: there is no administrator's token.
    std::shared_ptr<const TokenGuard> admin_token HPS_GUARDED_BY(mutex);
  } credentials_;

  mutable Mutex mutex_;
  CondVar none_open_;
  // Connections that exist, open or free to be opened again; they live as long as the server,
  // because an event of a closed socket may still be on its way to them.
  std::vector<std::unique_ptr<ServedConnection>> connections_ HPS_GUARDED_BY(mutex_);
  std::vector<ServedConnection*> free_ HPS_GUARDED_BY(mutex_);
  size_t open_count_ HPS_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<WorkerPool> slow_;
};

}  // namespace hps::server
