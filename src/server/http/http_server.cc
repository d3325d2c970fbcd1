#include "server/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/macros.h"

namespace hps::server {
namespace {

// What the pool keeps of memory that nobody uses now.
constexpr uint64_t kPoolKeptBytes = uint64_t{64} << 20;
// Loads and unloads that wait for the one that runs.
constexpr size_t kSlowTasksMax = 64;
// What OpenSSL takes for a connection, most of it during the handshake: its buffers for a record
// each way, the keys, the certificates and what it has of the client's.
constexpr uint64_t kTlsConnectionBytes = 64 << 10;
// How long a thread waits for room at a time. Who makes room wakes it, but those that end look-ups
// are not all threads of this server.
constexpr Duration kRoomWait = std::chrono::milliseconds(1);
constexpr Duration kTickMin = std::chrono::milliseconds(10);
constexpr Duration kTickMax = std::chrono::seconds(1);

// Time-outs are noticed at the next tick: this keeps that within a quarter of them.
Duration TickPeriod(const ServerConfig& config) {
  const Duration shortest = std::min(std::min(config.header_timeout, config.body_timeout),
                                     std::min(config.write_timeout, config.idle_timeout));
  return std::clamp(shortest / 4, kTickMin, kTickMax);
}

Duration ThreadProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

size_t ThreadCount(const ServerConfig& config, HttpRole role) {
  if (role == HttpRole::kMetricsOnly) return 1;
  if (config.threads > 0) return config.threads;
  return size_t{2} * std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProtocolServer>> StartHttpServer(const ProtocolParts& parts,
                                                                const std::string& address,
                                                                HttpRole role) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server, HttpServer::Start(parts, address, role));
  return std::unique_ptr<ProtocolServer>(std::move(server));
}

HttpServer::HttpServer(const ProtocolParts& parts, HttpRole role)
    : parts_(parts), role_(role), pool_(parts.config->bytes_in_flight_max * 2, kPoolKeptBytes) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ProtocolParts& parts,
                                                              const std::string& address,
                                                              HttpRole role) {
  std::unique_ptr<HttpServer> server(new HttpServer(parts, role));
  HPS_RETURN_IF_ERROR(server->Reopen());
  HPS_ASSIGN_OR_RETURN(server->listener_, Listener::Open(address));
  HPS_ASSIGN_OR_RETURN(server->slow_,
                       WorkerPool::Create({.name = "hps-http-slow", .queue_max = kSlowTasksMax}));
  HPS_ASSIGN_OR_RETURN(server->loop_,
                       EventLoop::Create({.name = "hps-http",
                                          .thread_count = ThreadCount(*parts.config, role),
                                          .tick_period = TickPeriod(*parts.config),
                                          .looks_ahead = role == HttpRole::kEverything},
                                         *server));
  HPS_RETURN_IF_ERROR(server->loop_->Start(server->listener_->fd()));
  return server;
}

HttpServer::~HttpServer() {
  if (loop_ == nullptr) return;
  // What looks up or loads ends by its own deadline, and can't be left before.
  if (!Drain(RealClock().Now()).ok()) AwaitNoConnections(kNoDeadline);
  loop_->Stop();
  slow_.reset();
}

absl::Status HttpServer::Drain(Deadline deadline) {
  if (!draining_.exchange(true)) shutdown(listener_->fd(), SHUT_RDWR);
  ActivateAll(Connection::kTick);
  if (AwaitNoConnections(deadline)) return absl::OkStatus();
  ActivateAll(Connection::kCut);
  return absl::DeadlineExceededError("http: connections were cut off that had not ended in time");
}

bool HttpServer::AwaitNoConnections(Deadline deadline) {
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

absl::Status HttpServer::Reopen() {
  const ServerConfig& config = *parts_.config;
  std::shared_ptr<const TlsContext> tls;
  if (!config.tls_certificate.empty()) {
    HPS_ASSIGN_OR_RETURN(tls, TlsContext::Create(config));
  }
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<const TokenGuard> token,
                       TokenGuard::Create(config.token_file));
  MutexLock lock(credentials_mutex_);
  tls_ = std::move(tls);
  token_ = std::move(token);
  return absl::OkStatus();
}

bool HttpServer::Admits(std::string_view authorization, bool needs_token) const {
  MutexLock lock(credentials_mutex_);
  return needs_token ? token_->has_token() && token_->Admits(authorization)
                     : token_->Admits(authorization);
}

absl::Status HttpServer::Watch(Connection& connection, int fd) {
  return loop_->Watch(fd, &connection);
}

void HttpServer::Wake(Connection& connection, int fd) { loop_->Again(fd, &connection); }

// A request that begins is read at once only when no other waits for that and there is room for it;
// what has begun goes on.
void HttpServer::OnSocket(void* source, SocketEnd end, bool is_last) {
  auto* const connection = static_cast<Connection*>(source);
  uint32_t events = Connection::kReady;
  if (end.hangup) events |= Connection::kHangup;
  if (end.reset) events |= Connection::kReset;
  const bool may_wait = connection->is_idle() && !end.reset;
  if (!may_wait || (is_last && backlog_.size() == 0 && HasRoom())) {
    return connection->Activate(events, /*may_start=*/true);
  }
  connection->Leave(events);
  backlog_.Push(connection->waiting(), connection->is_new(), RealClock().Now());
}

bool HttpServer::DoLeft() {
  if (backlog_.size() == 0) return false;
  const bool has_room = HasRoom();
  const Backlog::Turn turn = backlog_.Take(has_room);
  if (turn.entry == nullptr) {
    if (!has_room) backlog_.Await(RealClock().Now() + kRoomWait);
    return true;
  }
  if (has_room) backlog_.WakeOne();
  const Duration start = ThreadProcessorTime();
  static_cast<Connection*>(turn.entry->owner)->TakeTurn(turn.since);
  backlog_.End(turn, ThreadProcessorTime() - start);
  return true;
}

void HttpServer::OnAcceptable() {
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
      parts_.counters->CountRefused(RefusedReason::kConnections);
      close(fd);
    }
  }
}

void HttpServer::Accept(int fd) {
  Connection* const connection = TakeConnection();
  if (connection == nullptr) return RefuseConnection(fd);
  std::shared_ptr<const TlsContext> tls;
  {
    MutexLock lock(credentials_mutex_);
    tls = tls_;
  }
  TlsConnection secured;
  Admission::Reservation tls_bytes;
  if (tls != nullptr) {
    if (parts_.inference->ReserveBytes(kTlsConnectionBytes, &tls_bytes).ok()) {
      secured = tls->Accept(fd);
    } else {
      parts_.counters->CountRefused(RefusedReason::kConnections);
    }
    if (secured == nullptr) {
      close(fd);
      return OnClosed(*connection);
    }
  }
  connection->Offer(fd, std::move(secured), std::move(tls_bytes));
  connection->Activate(Connection::kOpened, /*may_start=*/true);
}

// Says why, if the socket takes it at once and a client without TLS can read it.
void HttpServer::RefuseConnection(int fd) {
  parts_.counters->CountRefused(RefusedReason::kConnections);
  constexpr std::string_view kAnswer =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
      "Content-Length: 45\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
      "{\"error\":\"the server has no connection left\"}";
  if (parts_.config->tls_certificate.empty()) {
    // Nothing is lost when it does not: the client sees the end.
    (void)send(fd, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
  }
  close(fd);
}

Connection* HttpServer::TakeConnection() {
  MutexLock lock(mutex_);
  if (open_count_ == parts_.config->connections_max) return nullptr;
  if (free_.empty()) {
    ConnectionHost& host = *this;
    free_.reserve(connections_.size() + 1);  // so that OnClosed allocates nothing
    connections_.push_back(std::make_unique<Connection>(host));
    free_.push_back(connections_.back().get());
  }
  Connection* const connection = free_.back();
  free_.pop_back();
  ++open_count_;
  parts_.counters->AddConnections(1);
  return connection;
}

void HttpServer::OnClosed(Connection& connection) {
  backlog_.Remove(connection.waiting());
  MutexLock lock(mutex_);
  free_.push_back(&connection);
  parts_.counters->AddConnections(-1);
  if (--open_count_ == 0) none_open_.NotifyAll();
}

void HttpServer::OnTick() {
  const TimePoint now = RealClock().Now();
  size_t count = 0;
  {
    MutexLock lock(mutex_);
    count = connections_.size();
  }
  for (size_t i = 0; i < count; ++i) {
    Connection* connection = nullptr;
    {
      MutexLock lock(mutex_);
      connection = connections_[i].get();
    }
    if (connection->IsLate(now)) connection->Activate(Connection::kTick, /*may_start=*/true);
  }
  if (!draining()) OnAcceptable();  // what there was no descriptor for
}

void HttpServer::ActivateAll(uint32_t event) {
  for (size_t i = 0;; ++i) {
    Connection* connection = nullptr;
    {
      MutexLock lock(mutex_);
      if (i == connections_.size()) return;
      connection = connections_[i].get();
    }
    connection->Activate(event, /*may_start=*/false);
  }
}

}  // namespace hps::server
