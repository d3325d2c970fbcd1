#include "server/net/served_connection.h"

#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <new>
#include <utility>

#include "server/net/connection_server.h"

namespace hps::server {
namespace {

int64_t Nanoseconds(TimePoint time) { return time.time_since_epoch().count(); }

}  // namespace

ServedConnection::ServedConnection(ConnectionServer& server)
    : connection_server_(server), deadline_ns_(Nanoseconds(kNoDeadline)) {}

void ServedConnection::Offer(int fd, TlsConnection tls, Admission::Reservation tls_bytes) {
  offered_.fd = fd;
  offered_.tls = std::move(tls);
  tls_bytes_ = std::move(tls_bytes);
  offered_.since_ns.store(Nanoseconds(RealClock().Now()), std::memory_order_relaxed);
  left_events_.store(0, std::memory_order_relaxed);  // of the socket before it
  ForgetArrival();
}

void ServedConnection::Activate(uint32_t events, bool may_start) {
  if (Note(events)) return Drive(may_start);
  OnDrivenElsewhere(events);
}

// While the connection waited, its socket may have been replaced by another: nothing of the new one
// came before it was offered.
bool ServedConnection::TakeTurn(const Backlog::Turn& turn) {
  const int64_t since_ns =
      std::max(Nanoseconds(turn.since), offered_.since_ns.load(std::memory_order_relaxed));
  const bool begins = turn.kind != Backlog::Kind::kInProgress;
  // A turn of kInProgress keeps the arrival of an earlier turn whose bytes are not read yet.
  int64_t known_ns = begins ? waits_since_ns_.load(std::memory_order_relaxed) : 0;
  waits_since_ns_.compare_exchange_strong(known_ns, since_ns, std::memory_order_relaxed);
  has_used_turn_.store(false, std::memory_order_relaxed);
  const uint32_t turn_event = begins ? uint32_t{kTurn} : 0u;
  Activate(kReady | turn_event | left_events_.exchange(0, std::memory_order_acq_rel),
           /*may_start=*/true);
  return has_used_turn_.load(std::memory_order_relaxed);
}

// The socket may be closed meanwhile, and another socket may have its number. The answer is then
// about that socket. This does no harm: it only decides whether the connection is read now or waits
// for its turn.
bool ServedConnection::HasUnread(size_t bytes) const {
  if (bytes == 0) return true;
  int unread = 0;
  const bool is_known = ioctl(socket_.load(std::memory_order_relaxed), FIONREAD, &unread) == 0;
  return is_known && static_cast<size_t>(unread) >= bytes;
}

TimePoint ServedConnection::TakeArrival(TimePoint now) {
  const int64_t since_ns = waits_since_ns_.exchange(0, std::memory_order_relaxed);
  return since_ns > 0 ? TimePoint(Duration(since_ns)) : now;
}

// A late event may report the end of the socket that the connection had before. Asks the present
// socket, and drops an end that it does not have.
uint32_t ServedConnection::OwnEvents(uint32_t events) const {
  if ((events & (kHangup | kReset)) == 0 || !transport_.is_open()) return events;
  pollfd now{.fd = transport_.fd(), .events = POLLRDHUP, .revents = 0};
  if (poll(&now, 1, 0) < 0) return events;
  if ((now.revents & (POLLHUP | POLLERR)) == 0) events &= ~uint32_t{kReset};
  if ((now.revents & (POLLHUP | POLLERR | POLLRDHUP)) == 0) events &= ~uint32_t{kHangup};
  return events;
}

bool ServedConnection::Note(uint32_t events) {
  return (events_.fetch_or(kDriven | events, std::memory_order_acq_rel) & kDriven) == 0;
}

void ServedConnection::Drive(bool may_start) {
  BeginTurn();
  idle_.store(false, std::memory_order_relaxed);
  for (;;) {
    try {
      Handle(OwnEvents(events_.exchange(kDriven, std::memory_order_acq_rel)), may_start);
    } catch (const std::bad_alloc&) {
      OnNoMemory();
    }
    InferenceCall* const call = TakeCall(may_start);
    const bool has_more = has_calls();
    // Another thread takes the next one, unless this one is free before.
    if (has_more && transport_.is_open()) Wake();
    idle_.store(call == nullptr && !has_more && IsIdle(), std::memory_order_relaxed);
    const bool closed = std::exchange(is_closed_, false);
    uint32_t expected = kDriven;
    if (events_.compare_exchange_strong(expected, 0, std::memory_order_acq_rel)) {
      // The server is told last: it may end after that.
      if (closed) return connection_server_.OnClosed(*this);
      if (call == nullptr) return;
      connection_server_.CallHelp();
      connection_server_.parts().inference->Run(*call);
      if (!has_more || !Note(0)) return;
      continue;
    }
    is_closed_ = closed;
    if (call != nullptr) PutBack(*call);
  }
}

void ServedConnection::OpenTransport() {
  transport_.Open(std::exchange(offered_.fd, -1), std::move(offered_.tls));
  socket_.store(transport_.fd(), std::memory_order_relaxed);
  is_new_.store(true, std::memory_order_relaxed);
}

bool ServedConnection::Watch() { return connection_server_.Watch(*this, transport_.fd()).ok(); }

void ServedConnection::Wake() { connection_server_.Wake(*this); }

void ServedConnection::EndConnection() {
  SetDeadline(kNoDeadline);
  tls_bytes_.reset();
  is_closed_ = true;
}

}  // namespace hps::server
