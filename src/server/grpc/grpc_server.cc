#include "server/grpc/grpc_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/macros.h"
#include "base/no_memory.h"
#include "server/core/server_core.h"

namespace hps::server {
namespace {

// What the pool keeps of memory that nobody uses now.
constexpr uint64_t kPoolKeptBytes = uint64_t{64} << 20;
// Loads and unloads that wait for the one that runs.
constexpr size_t kSlowTasksMax = 64;
// What OpenSSL takes for a connection, most of it during the handshake.
constexpr uint64_t kTlsConnectionBytes = 64 << 10;
constexpr Duration kTickMin = std::chrono::milliseconds(10);
constexpr Duration kTickMax = std::chrono::milliseconds(500);

// Time-outs are noticed at the next tick: this keeps that within a quarter of them.
Duration TickPeriod(const ServerConfig& config) {
  const Duration shortest =
      std::min({config.header_timeout, config.body_timeout, config.write_timeout,
                config.idle_timeout, config.stream_idle_timeout});
  return std::clamp<Duration>(shortest / 4, kTickMin, kTickMax);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProtocolServer>> StartGrpcServer(const ProtocolParts& parts,
                                                                const std::string& address) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<GrpcServer> server, GrpcServer::Start(parts, address));
  return std::unique_ptr<ProtocolServer>(std::move(server));
}

GrpcServer::GrpcServer(const ProtocolParts& parts, bool has_token)
    : shared_{.parts = parts,
              .control = ControlMethods(parts, {parts.config->repository_control && has_token}),
              .pool = BufferPool(parts.config->bytes_in_flight_max * 2, kPoolKeptBytes),
              .places =
                  StreamPlaces({.places_max = kGrpcStreamsMax,
                                .connection_places_max = parts.config->connection_streams_max})} {}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ProtocolParts& parts,
                                                              const std::string& address) {
  (void)NoMemory();
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<const TokenGuard> token,
                       TokenGuard::Create(parts.config->token_file));
  std::unique_ptr<GrpcServer> server(new GrpcServer(parts, token->has_token()));
  HPS_RETURN_IF_ERROR(server->Reopen());
  HPS_ASSIGN_OR_RETURN(server->listener_, Listener::Open(address));
  HPS_ASSIGN_OR_RETURN(server->slow_,
                       WorkerPool::Create({.name = "hps-grpc-slow", .queue_max = kSlowTasksMax}));
  HPS_ASSIGN_OR_RETURN(server->loop_,
                       EventLoop::Create({.name = "hps-grpc",
                                          .thread_count = ProtocolThreads(*parts.config),
                                          .tick_period = TickPeriod(*parts.config)},
                                         *server));
  HPS_RETURN_IF_ERROR(server->loop_->Start(server->listener_->fd()));
  return server;
}

GrpcServer::~GrpcServer() {
  if (loop_ == nullptr) return;
  // What looks up or loads ends by its own deadline, and can't be left before.
  if (!Drain(RealClock().Now()).ok()) AwaitNoConnections(kNoDeadline);
  loop_->Stop();
  slow_.reset();
}

absl::Status GrpcServer::Drain(Deadline deadline) {
  if (!shared_.draining.exchange(true)) shutdown(listener_->fd(), SHUT_RDWR);
  ActivateAll(GrpcConnection::kTick);
  if (AwaitNoConnections(deadline)) return absl::OkStatus();
  ActivateAll(GrpcConnection::kCut);
  return absl::DeadlineExceededError("gRPC calls were cut off at the drain's deadline");
}

bool GrpcServer::AwaitNoConnections(Deadline deadline) {
  MutexLock lock(mutex_);
  while (open_count_ > 0) {
    if (deadline == kNoDeadline) {
      none_open_.Wait(mutex_);
    } else if (!none_open_.WaitUntil(mutex_, deadline)) {
      return open_count_ == 0;
    }
  }
  return true;
}

absl::Status GrpcServer::Reopen() {
  const ServerConfig& config = *shared_.parts.config;
  std::shared_ptr<const TlsContext> tls;
  if (!config.tls_certificate.empty()) {
    HPS_ASSIGN_OR_RETURN(tls, TlsContext::Create(config, "h2"));
  }
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<const TokenGuard> token,
                       TokenGuard::Create(config.token_file));
  MutexLock lock(credentials_mutex_);
  tls_ = std::move(tls);
  token_ = std::move(token);
  return absl::OkStatus();
}

bool GrpcServer::Admits(std::string_view authorization) const {
  MutexLock lock(credentials_mutex_);
  return token_->Admits(authorization);
}

absl::Status GrpcServer::Watch(GrpcConnection& connection, int fd) {
  return loop_->Watch(fd, &connection);
}

void GrpcServer::Wake(GrpcConnection& connection, int fd) { loop_->Again(fd, &connection); }

GrpcStream* GrpcServer::TakeStream() {
  MutexLock lock(streams_mutex_);
  if (free_streams_.empty()) {
    if (streams_.size() == kGrpcCallsMax) return nullptr;
    try {
      GrpcHost& host = *this;
      free_streams_.reserve(streams_.size() + 1);  // so that ReturnStream allocates nothing
      streams_.push_back(std::make_unique<GrpcStream>(host));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    return streams_.back().get();
  }
  GrpcStream* const stream = free_streams_.back();
  free_streams_.pop_back();
  return stream;
}

void GrpcServer::ReturnStream(GrpcStream& stream) {
  MutexLock lock(streams_mutex_);
  free_streams_.push_back(&stream);
}

void GrpcServer::OnSocket(void* source, SocketEnd end, bool /*is_last*/) {
  uint32_t events = GrpcConnection::kReady;
  if (end.hangup) events |= GrpcConnection::kHangup;
  if (end.reset) events |= GrpcConnection::kReset;
  static_cast<GrpcConnection*>(source)->Activate(events, /*may_start=*/true);
}

void GrpcServer::OnAcceptable() {
  for (;;) {
    const int fd = listener_->Accept();
    if (fd == Listener::kNone || fd == Listener::kNoRoom) return;
    if (draining()) {
      close(fd);
      continue;
    }
    try {
      Accept(fd);
    } catch (const std::bad_alloc&) {  // before the connection had the socket
      shared_.parts.counters->CountRefused(RefusedReason::kConnections);
      close(fd);
    }
  }
}

void GrpcServer::Accept(int fd) {
  GrpcConnection* const connection = TakeConnection();
  if (connection == nullptr) {
    shared_.parts.counters->CountRefused(RefusedReason::kConnections);
    close(fd);
    return;
  }
  std::shared_ptr<const TlsContext> tls;
  {
    MutexLock lock(credentials_mutex_);
    tls = tls_;
  }
  TlsConnection secured;
  Admission::Reservation tls_bytes;
  if (tls != nullptr) {
    if (shared_.parts.inference->ReserveBytes(kTlsConnectionBytes, &tls_bytes).ok()) {
      secured = tls->Accept(fd);
    } else {
      shared_.parts.counters->CountRefused(RefusedReason::kConnections);
    }
    if (secured == nullptr) {
      close(fd);
      return OnClosed(*connection);
    }
  }
  connection->Offer(fd, std::move(secured), std::move(tls_bytes));
  connection->Activate(GrpcConnection::kOpened, /*may_start=*/true);
}

GrpcConnection* GrpcServer::TakeConnection() {
  MutexLock lock(mutex_);
  if (open_count_ == shared_.parts.config->connections_max) return nullptr;
  if (free_.empty()) {
    GrpcHost& host = *this;
    free_.reserve(connections_.size() + 1);  // so that OnClosed allocates nothing
    connections_.push_back(std::make_unique<GrpcConnection>(host));
    free_.push_back(connections_.back().get());
  }
  GrpcConnection* const connection = free_.back();
  free_.pop_back();
  ++open_count_;
  return connection;
}

void GrpcServer::OnClosed(GrpcConnection& connection) {
  MutexLock lock(mutex_);
  free_.push_back(&connection);
  if (--open_count_ == 0) none_open_.NotifyAll();
}

void GrpcServer::OnTick() {
  const TimePoint now = RealClock().Now();
  size_t count = 0;
  {
    MutexLock lock(mutex_);
    count = connections_.size();
  }
  for (size_t i = 0; i < count; ++i) {
    GrpcConnection* connection = nullptr;
    {
      MutexLock lock(mutex_);
      connection = connections_[i].get();
    }
    if (connection->IsLate(now)) connection->Activate(GrpcConnection::kTick, /*may_start=*/true);
  }
  if (!draining()) OnAcceptable();  // what there was no descriptor for
}

void GrpcServer::ActivateAll(uint32_t event) {
  for (size_t i = 0;; ++i) {
    GrpcConnection* connection = nullptr;
    {
      MutexLock lock(mutex_);
      if (i == connections_.size()) return;
      connection = connections_[i].get();
    }
    connection->Activate(event, /*may_start=*/false);
  }
}

}  // namespace hps::server
