#include "server/net/connection_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"

namespace hps::server {
namespace {

// What the pool keeps of memory that nobody uses now.
constexpr uint64_t kPoolKeptBytes = uint64_t{64} << 20;
// One part in so many of the bytes in flight is there for small requests beside the others.
constexpr uint64_t kSmallRequestsPart = 8;
// Loads and unloads that wait for the one that runs.
constexpr size_t kSlowTasksMax = 64;
// How long a thread waits for room at a time. A thread of this server that finds room wakes it, but
// room can also come from a lookup that ends on a thread of another server.
constexpr Duration kRoomWait = std::chrono::milliseconds(1);
// Entries that a thread that is about to look up leaves for itself, to take them after the lookup:
// most lookups take less time than waking another thread.
constexpr size_t kDoneNext = 1;
// Sockets that one turn of a thread accepts: then those that are open have theirs.
constexpr size_t kAcceptsPerTurn = 64;
constexpr Duration kTickMin = std::chrono::milliseconds(10);
constexpr Duration kTickMax = std::chrono::milliseconds(500);

// Admitted requests and their answers take `bytes_in_flight_max` at most. As much again is for
// requests that are not admitted yet, so that every admitted request finds room for its answer.
BufferPool::Limits PoolLimits(uint64_t bytes_in_flight_max) {
  const uint64_t small_bytes = bytes_in_flight_max / kSmallRequestsPart;
  return {.lent_bytes_max = 2 * bytes_in_flight_max + small_bytes,
          .request_bytes_max = bytes_in_flight_max + small_bytes,
          .large_request_bytes_max = bytes_in_flight_max,
          .kept_bytes_max = kPoolKeptBytes};
}

Duration ThreadProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// The processor time of this thread at the end of its last turn, while it has done little since;
// zero otherwise. Asking for the time costs the system as much as a small read.
thread_local Duration last_turn_end{};

}  // namespace

ConnectionServer::ConnectionServer(const ProtocolParts& parts, Options options)
    : parts_(parts),
      options_(std::move(options)),
      pool_(PoolLimits(parts.config->bytes_in_flight_max)) {}

Duration ConnectionServer::TickPeriodFor(Duration shortest_timeout) {
  return std::clamp<Duration>(shortest_timeout / 4, kTickMin, kTickMax);
}

absl::Status ConnectionServer::Listen(const std::string& address) {
  HPS_RETURN_IF_ERROR(Reopen());
  HPS_ASSIGN_OR_RETURN(listener_, Listener::Open(address));
  HPS_ASSIGN_OR_RETURN(slow_, WorkerPool::Create({.name = absl::StrCat(options_.name, "-slow"),
                                                  .queue_max = kSlowTasksMax}));
  HPS_ASSIGN_OR_RETURN(loop_, EventLoop::Create({.name = options_.name,
                                                 .thread_count = options_.thread_count,
                                                 .tick_period = options_.tick_period,
                                                 .looks_ahead = options_.leaves_unread},
                                                *this));
  return loop_->Start(listener_->fd());
}

void ConnectionServer::Stop() {
  if (loop_ == nullptr) return;
  // Lookups and loads that still run end by their own deadlines, and use their connection until
  // then.
  if (!Drain(RealClock().Now()).ok()) AwaitNoConnections(kNoDeadline);
  loop_->Stop();
  slow_.reset();
}

absl::Status ConnectionServer::Drain(Deadline deadline) {
  if (!draining_.exchange(true)) shutdown(listener_->fd(), SHUT_RDWR);
  ActivateAll(ServedConnection::kTick);
  if (AwaitNoConnections(deadline)) return absl::OkStatus();
  ActivateAll(ServedConnection::kCut);
  return absl::DeadlineExceededError(
      absl::StrCat(options_.name, ": connections were cut off that had not ended in time"));
}

bool ConnectionServer::AwaitNoConnections(Deadline deadline) {
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

absl::Status ConnectionServer::Reopen() {
  const ServerConfig& config = *parts_.config;
  std::shared_ptr<const TlsContext> tls;
  if (!config.tls_certificate.empty()) {
    HPS_ASSIGN_OR_RETURN(tls, TlsContext::Create(config, options_.tls_protocol));
  }
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<const TokenGuard> token,
                       TokenGuard::Create(config.token_file));
  std::shared_ptr<const TokenGuard> admin_token;
  if (!config.admin_token_file.empty()) {
    HPS_ASSIGN_OR_RETURN(admin_token,
                         TokenGuard::Create(config.admin_token_file, "admin_token_file"));
  }
  if (tls != nullptr) parts_.counters->NoteCertificate(tls->not_before(), tls->not_after());
  MutexLock lock(credentials_.mutex);
  credentials_.tls = std::move(tls);
  credentials_.token = std::move(token);
  credentials_.admin_token = std::move(admin_token);
  return absl::OkStatus();
}

bool ConnectionServer::Admits(std::string_view authorization) const {
  MutexLock lock(credentials_.mutex);
  return credentials_.token->Admits(authorization) ||
         (credentials_.admin_token != nullptr && credentials_.admin_token->Admits(authorization));
}

bool ConnectionServer::AdmitsControl(std::string_view authorization) const {
  MutexLock lock(credentials_.mutex);
  const TokenGuard& guard =
      credentials_.admin_token != nullptr ? *credentials_.admin_token : *credentials_.token;
  return guard.has_token() && guard.Admits(authorization);
}

// A new request is read at once only if no other one waits to be read and there is room for it. A
// request that has begun is continued here, except by a thread that has more sockets to serve: a
// lookup could keep it for long.
void ConnectionServer::OnSocket(void* source, SocketEnd end, bool is_last) {
  auto* const connection = static_cast<ServedConnection*>(source);
  uint32_t events = ServedConnection::kReady;
  if (end.hangup) events |= ServedConnection::kHangup;
  if (end.reset) events |= ServedConnection::kReset;
  const bool is_alone = is_last && backlog_.size() == 0;
  const bool may_wait = !(is_alone && HasRoom()) && connection->is_idle() && !end.reset &&
                        connection->HasUnread(options_.request_bytes_min);
  if (!may_wait && is_alone) {
    last_turn_end = {};
    return connection->Activate(events, /*may_start=*/true);
  }
  connection->NoteLeft(events);
  const bool is_new = connection->is_new();
  const Backlog::Kind begins = is_new ? Backlog::Kind::kFirst : Backlog::Kind::kLater;
  // This thread comes for it.
  backlog_.Push(connection->waiting(), may_wait ? begins : Backlog::Kind::kInProgress,
                RealClock().Now());
}

// One of the server's own threads comes for it itself, or calls help.
void ConnectionServer::Leave(Backlog::Entry& entry, Backlog::Kind kind, TimePoint since) {
  backlog_.Push(entry, kind, since);
  if (loop_->IsOwnThread()) {
    loop_->WakeOneLater();
  } else {
    loop_->WakeOne();
  }
}

void ConnectionServer::CallHelp() {
  const size_t left_count = backlog_.size();
  if (left_count > kDoneNext) {
    loop_->WakeOne();
  } else if (left_count > 0) {
    loop_->WakeOneLater();
  }
}

bool ConnectionServer::DoLeft() {
  if (backlog_.size() == 0) return false;
  const bool may_begin = MayHoldTurn();
  const bool has_room = may_begin && HasRoom();
  const Backlog::Turn turn = may_begin ? backlog_.Take(has_room) : backlog_.TakeBegun();
  if (turn.entry == nullptr) {
    if (!has_room) backlog_.Await(RealClock().Now() + kRoomWait);
    return true;
  }
  if (has_room) backlog_.WakeOne();
  const Duration start = last_turn_end > Duration::zero() ? last_turn_end : ThreadProcessorTime();
  const bool had_request = turn.entry->waiter->TakeTurn(turn);
  last_turn_end = ThreadProcessorTime();
  backlog_.End(turn, last_turn_end - start, had_request);
  return true;
}

void ConnectionServer::OnAcceptable() {
  last_turn_end = {};
  for (size_t i = 0; i < kAcceptsPerTurn; ++i) {
    const int fd = listener_->Accept();
    if (fd == Listener::kNone) return;
    if (fd == Listener::kNoRoom) {
      parts_.counters->CountRefused(RefusedReason::kConnections);
      return LogWarning(absl::StrCat(
          options_.name, ": a client waits, because no file or memory is left to accept its ",
          "connection; raise the limit of open files (LimitNOFILE, ulimit -n)"));
    }
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
  loop_->AcceptAgain(listener_->fd());
}

void ConnectionServer::Accept(int fd) {
  ServedConnection* const connection = TakeConnection();
  if (connection == nullptr) {
    parts_.counters->CountRefused(RefusedReason::kConnections);
    OnRefusedConnection(fd);
    close(fd);
    return;
  }
  std::shared_ptr<const TlsContext> tls;
  {
    MutexLock lock(credentials_.mutex);
    tls = credentials_.tls;
  }
  TlsConnection secured;
  Admission::Reservation tls_bytes;
  if (tls != nullptr) {
    if (parts_.inference->ReserveBytes(kTlsConnectionBytes, &tls_bytes).ok()) {
      secured = tls->Accept();
    } else {
      parts_.counters->CountRefused(RefusedReason::kConnections);
    }
    if (secured == nullptr) {
      close(fd);
      return OnClosed(*connection);
    }
  }
  connection->Offer(fd, std::move(secured), std::move(tls_bytes));
  // Begins no request: this thread may have taken events of other sockets, which a lookup would
  // delay.
  connection->Activate(ServedConnection::kOpened, /*may_start=*/false);
}

absl::Status ConnectionServer::PostSlow(Task* task) {
  const absl::Status posted = slow_->Post(task);
  if (!posted.ok()) parts_.counters->CountRefused(RefusedReason::kCapacity);
  return posted;
}

ServedConnection* ConnectionServer::TakeConnection() {
  MutexLock lock(mutex_);
  if (open_count_ == parts_.config->connections_max) return nullptr;
  if (free_.empty()) {
    free_.reserve(connections_.size() + 1);  // so that OnClosed allocates nothing
    connections_.push_back(NewConnection());
    free_.push_back(connections_.back().get());
  }
  ServedConnection* const connection = free_.back();
  free_.pop_back();
  ++open_count_;
  CountConnections(1);
  return connection;
}

void ConnectionServer::OnClosed(ServedConnection& connection) {
  backlog_.Remove(connection.waiting());
  MutexLock lock(mutex_);
  free_.push_back(&connection);
  CountConnections(-1);
  if (--open_count_ == 0) none_open_.NotifyAll();
}

ServedConnection* ConnectionServer::ConnectionAt(size_t index) {
  MutexLock lock(mutex_);
  return index < connections_.size() ? connections_[index].get() : nullptr;
}

void ConnectionServer::OnTick() {
  last_turn_end = {};
  const TimePoint now = RealClock().Now();
  for (size_t i = 0; ServedConnection* const connection = ConnectionAt(i); ++i) {
    if (connection->IsLate(now)) connection->Activate(ServedConnection::kTick, /*may_start=*/false);
  }
  if (!draining()) OnAcceptable();  // what there was no descriptor for
}

void ConnectionServer::ActivateAll(uint32_t event) {
  for (size_t i = 0; ServedConnection* const connection = ConnectionAt(i); ++i) {
    connection->Activate(event, /*may_start=*/false);
  }
}

}  // namespace hps::server
