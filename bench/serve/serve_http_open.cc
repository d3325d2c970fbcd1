// The HTTP half of serve_open_client.h: sockets that never block, watched by epoll. An answer's
// body is thrown away inside the kernel unless it is compared: on a machine that it shares with the
// server, a generator has to cost little.
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/serve/serve_http_head.h"
#include "bench/serve/serve_open_client.h"
#include "bench/serve/serve_socket.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;

// As in the closed loop: enough answers to find a server that mixes up rows.
constexpr uint64_t kAnswersPerCheck = 64;
constexpr size_t kHeadReadBytes = 1024;
constexpr size_t kHeadBytesMax = 16384;
constexpr size_t kCheckReadBytes = size_t{1} << 18;
constexpr size_t kEventsMax = 128;
constexpr int kHttpOk = 200;
constexpr int kHttpTooManyRequests = 429;
constexpr int kHttpGatewayTimeout = 504;

OpenAnswer::Kind KindOf(int code) {
  switch (code) {
    case kHttpOk:
      return OpenAnswer::Kind::kRows;
    case kHttpTooManyRequests:
      return OpenAnswer::Kind::kRefused;
    case kHttpGatewayTimeout:
      return OpenAnswer::Kind::kLate;
    default:
      return OpenAnswer::Kind::kFailed;
  }
}

// One connection, with the request that is on its way.
struct Connection {
  size_t index = 0;  // among all of the client
  int fd = -1;
  bool busy = false;
  bool compared = false;     // its answer's rows are
  size_t request = 0;        // of the target
  std::string_view unsent;   // the rest of the request
  bool has_head = false;     // of the answer
  HttpAnswerHead head;       // when has_head
  std::string received;      // the head until it is whole; also the body of one that is compared
  size_t body_received = 0;  // bytes
  Clock::time_point arrival;
};

class HttpOpenClient final : public OpenClient {
 public:
  HttpOpenClient(const LoadTarget& target, size_t in_flight_max, int epoll)
      : target_(target), in_flight_max_(in_flight_max), epoll_(epoll), scratch_(kCheckReadBytes) {}
  ~HttpOpenClient() override {
    for (Connection& connection : connections_) {
      if (connection.fd >= 0) close(connection.fd);
    }
    close(epoll_);
  }

  TimePoint Now() override { return Clock::now(); }

  bool Send(uint64_t number, TimePoint arrival) override {
    Connection* const connection = Take();
    if (connection == nullptr) return false;
    connection->busy = true;
    connection->compared = sent_++ % kAnswersPerCheck == 0 && !target_.rows.empty();
    connection->request = number % target_.requests.size();
    connection->unsent = target_.requests[connection->request];
    connection->has_head = false;
    connection->received.clear();
    connection->body_received = 0;
    connection->arrival = arrival;
    ++busy_;
    if (connection->fd < 0 && !Open(*connection)) {
      Finish(*connection, OpenAnswer::Kind::kFailed, 0, true);
    } else {
      Write(*connection);
    }
    return true;
  }

  absl::Status Poll(TimePoint until,
                    const std::function<void(const OpenAnswer&)>& on_answer) override {
    const auto left = answers_.empty() ? std::max(until - Now(), Clock::duration::zero())
                                       : Clock::duration::zero();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec wait{.tv_sec = static_cast<time_t>(seconds.count()),
                        .tv_nsec = static_cast<long>((left - seconds).count())};
    const int count = epoll_pwait2(epoll_, events_.data(), kEventsMax, &wait, nullptr);
    for (int i = 0; i < count; ++i) {
      Connection& connection = connections_[events_[static_cast<size_t>(i)].data.u64];
      if (connection.fd < 0) continue;
      if (!connection.unsent.empty()) Write(connection);
      if (connection.fd >= 0) HPS_RETURN_IF_ERROR(Read(connection));
    }
    for (const OpenAnswer& answer : answers_) on_answer(answer);
    answers_.clear();
    return absl::OkStatus();
  }

  size_t in_flight() const override { return busy_ + answers_.size(); }
  size_t connections() const override { return connections_.size(); }

 private:
  // One without a request, the one that was used last first, so that few are used when few will do.
  Connection* Take() {
    if (!free_.empty()) {
      const size_t index = free_.back();
      free_.pop_back();
      return &connections_[index];
    }
    if (connections_.size() == in_flight_max_) return nullptr;
    connections_.push_back({.index = connections_.size()});
    return &connections_.back();
  }

  bool Open(Connection& connection) {
    const absl::StatusOr<int> fd = ConnectWithoutWaiting(target_.address);
    if (!fd.ok()) return false;
    connection.fd = *fd;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = connection.index;
    return epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event) == 0;
  }

  // The answer of a request, whatever it is; the connection is free then.
  void Finish(Connection& connection, OpenAnswer::Kind kind, int code, bool closes) {
    answers_.push_back(
        {.kind = kind, .code = code, .arrival = connection.arrival, .end = Clock::now()});
    connection.busy = false;
    connection.unsent = {};
    --busy_;
    if (closes) Close(connection);
    free_.push_back(connection.index);
  }

  void Close(Connection& connection) {
    if (connection.fd >= 0) close(connection.fd);
    connection.fd = -1;
  }

  // The connection ended without an answer, or while it was free.
  void Break(Connection& connection) {
    if (connection.busy) {
      Finish(connection, OpenAnswer::Kind::kFailed, 0, true);
    } else {
      Close(connection);
    }
  }

  void Write(Connection& connection) {
    while (!connection.unsent.empty()) {
      const ssize_t sent =
          send(connection.fd, connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
      // It is also not yet connected then: epoll says when it is.
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (sent <= 0) return Break(connection);
      connection.unsent.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // Reads until the answer is whole, or nothing is there.
  absl::Status Read(Connection& connection) {
    for (;;) {
      const bool discards = connection.has_head && !connection.compared;
      const size_t wanted = discards              ? std::min(BodyLeft(connection), scratch_.size())
                            : connection.compared ? kCheckReadBytes
                                                  : kHeadReadBytes;
      const ssize_t got = recv(connection.fd, scratch_.data(), wanted, discards ? MSG_TRUNC : 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
      if (got <= 0) {
        Break(connection);
        return absl::OkStatus();
      }
      if (!connection.busy)
        return absl::InternalError("bench serve: an answer that none asked for");
      HPS_RETURN_IF_ERROR(Received(connection, static_cast<size_t>(got), discards));
      if (!connection.busy) return absl::OkStatus();
    }
  }

  static size_t BodyLeft(const Connection& connection) {
    return connection.head.body_bytes - connection.body_received;
  }

  absl::Status Received(Connection& connection, size_t bytes, bool discarded) {
    if (!discarded && (connection.compared || !connection.has_head))
      connection.received.append(scratch_.data(), bytes);
    size_t body_bytes = bytes;
    if (!connection.has_head) {
      const size_t end = connection.received.find("\r\n\r\n");
      if (end == std::string::npos && connection.received.size() < kHeadBytesMax)
        return absl::OkStatus();
      const size_t head_bytes = end == std::string::npos ? kHeadBytesMax : end + 4;
      HPS_ASSIGN_OR_RETURN(
          connection.head,
          ParseHttpAnswerHead(std::string_view(connection.received).substr(0, head_bytes)));
      connection.has_head = true;
      body_bytes = connection.received.size() - head_bytes;
    }
    connection.body_received += body_bytes;
    if (connection.body_received > connection.head.body_bytes)
      return absl::InternalError("bench serve: an answer is longer than it says");
    if (BodyLeft(connection) > 0) return absl::OkStatus();
    const OpenAnswer::Kind kind = KindOf(connection.head.code);
    if (connection.compared && kind == OpenAnswer::Kind::kRows && !HasRows(connection))
      return absl::InternalError("bench serve: an answer has other rows than the planted ones");
    Finish(connection, kind, connection.head.code, connection.head.closes);
    return absl::OkStatus();
  }

  bool HasRows(const Connection& connection) const {
    const std::vector<std::byte>& rows = target_.rows[connection.request];
    const std::string& received = connection.received;
    return rows.size() <= connection.head.body_bytes &&
           std::memcmp(received.data() + received.size() - rows.size(), rows.data(), rows.size()) ==
               0;
  }

  const LoadTarget& target_;
  const size_t in_flight_max_;
  const int epoll_;
  std::vector<char> scratch_;
  std::deque<Connection> connections_;
  std::vector<size_t> free_;
  std::vector<OpenAnswer> answers_;  // that Poll has not handed on
  std::array<epoll_event, kEventsMax> events_{};
  size_t busy_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OpenClient>> OpenHttpClient(const LoadTarget& target,
                                                           size_t in_flight_max) {
  // Checks the address once, and that somebody listens.
  HPS_RETURN_IF_ERROR(ServeSocket::Connect(target.address).status());
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0)
    return absl::UnavailableError(absl::StrCat("bench serve: epoll: ", std::strerror(errno)));
  // Else a wait for the next arrival ends 50 us late.
  prctl(PR_SET_TIMERSLACK, 1);
  return std::make_unique<HttpOpenClient>(target, in_flight_max, epoll);
}

}  // namespace hps::bench
