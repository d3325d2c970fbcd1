// The gRPC half of serve_open_client.h: calls over a few connections, HTTP/2 by libnghttp2. gRPC's
// own client takes as much of a core for a call as the server does: it could not offer a server
// more than its capacity, and says late what has come in time.
#include <nghttp2/nghttp2.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "bench/serve/serve_open_client.h"
#include "bench/serve/serve_socket.h"
#include "server/grpc/http2_field.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kConnections = 4;
constexpr uint64_t kAnswersPerCheck = 64;
constexpr size_t kReadBytes = size_t{512} << 10;
// So that no answer waits for the client's window.
constexpr int32_t kStreamWindowBytes = 4 << 20;
constexpr int32_t kConnectionWindowBytes = 1 << 30;
// What is taken from a session before it is written.
constexpr size_t kUnsentBytesMax = size_t{256} << 10;
constexpr int kGrpcOk = 0;
constexpr int kGrpcDeadlineExceeded = 4;
constexpr int kGrpcResourceExhausted = 8;
constexpr int kNoStatus = -1;

OpenAnswer::Kind KindOf(int code) {
  switch (code) {
    case kGrpcOk:
      return OpenAnswer::Kind::kRows;
    case kGrpcResourceExhausted:
      return OpenAnswer::Kind::kRefused;
    case kGrpcDeadlineExceeded:
      return OpenAnswer::Kind::kLate;
    default:
      return OpenAnswer::Kind::kFailed;
  }
}

// Its texts outlive the session.
nghttp2_nv Field(std::string_view name, std::string_view value) {
  return server::Http2Field(name, value,
                            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE);
}

// As gRPC sends it before the message: not compressed, and how long it is.
std::string Framed(const std::string& message) {
  std::string framed(1, '\0');
  for (const int shift : {24, 16, 8, 0})
    framed.push_back(static_cast<char>(message.size() >> shift & 0xff));
  return framed + message;
}

class GrpcOpenClient;
struct Connection;

struct Call {
  size_t index = 0;                  // among all of the client
  Connection* connection = nullptr;  // null where free
  size_t request = 0;
  bool compared = false;
  Clock::time_point arrival;
  std::string_view unsent;
  std::string received;  // of one that is compared
  int status = kNoStatus;
};

struct DeleteSession {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};

struct Connection {
  GrpcOpenClient* client = nullptr;
  int fd = -1;
  bool is_ready = false;  // the server has said what it lets a client do
  bool blocked = false;   // with `unsent`
  std::string unsent;
  size_t unsent_begin = 0;
  std::unique_ptr<nghttp2_session, DeleteSession> session;
};

class GrpcOpenClient final : public OpenClient {
 public:
  GrpcOpenClient(const LoadTarget& target, size_t in_flight_max, int epoll)
      : target_(target), epoll_(epoll), scratch_(kReadBytes), calls_(in_flight_max) {
    for (const std::string& request : target.requests) framed_.push_back(Framed(request));
    for (size_t i = in_flight_max; i > 0; --i) {
      calls_[i - 1].index = i - 1;
      free_.push_back(i - 1);
    }
    for (Connection& connection : connections_) connection.client = this;
  }
  GrpcOpenClient(const GrpcOpenClient&) = delete;
  GrpcOpenClient& operator=(const GrpcOpenClient&) = delete;
  ~GrpcOpenClient() override {
    for (Connection& connection : connections_) Close(connection);
    close(epoll_);
  }

  absl::Status Connect() {
    const Clock::time_point end = Now() + std::chrono::seconds(10);
    for (Connection& connection : connections_) {
      HPS_RETURN_IF_ERROR(Open(connection));
      while (!connection.is_ready) {
        if (connection.fd < 0 || Now() > end)
          return absl::UnavailableError(
              absl::StrCat("bench serve: ", target_.address, " takes no calls of gRPC"));
        HPS_RETURN_IF_ERROR(Poll(end, [](const OpenAnswer&) {}));
      }
    }
    return absl::OkStatus();
  }

  TimePoint Now() override { return Clock::now(); }

  bool Send(uint64_t number, TimePoint arrival) override {
    if (free_.empty()) return false;
    Call& call = calls_[free_.back()];
    free_.pop_back();
    call.request = number % framed_.size();
    call.compared = sent_++ % kAnswersPerCheck == 0 && !target_.rows.empty();
    call.arrival = arrival;
    call.unsent = framed_[call.request];
    call.received.clear();
    call.status = kNoStatus;
    Connection& connection = connections_[number % kConnections];
    call.connection = &connection;
    if ((connection.fd < 0 && !Open(connection).ok()) || !Submit(connection, call)) Finish(call);
    return true;
  }

  absl::Status Poll(TimePoint until,
                    const std::function<void(const OpenAnswer&)>& on_answer) override {
    for (Connection& connection : connections_) {
      if (connection.fd >= 0 && !connection.blocked) Write(connection);
    }
    const auto left = answers_.empty() ? std::max(until - Now(), Clock::duration::zero())
                                       : Clock::duration::zero();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec wait{.tv_sec = static_cast<time_t>(seconds.count()),
                        .tv_nsec = static_cast<long>((left - seconds).count())};
    std::array<epoll_event, kConnections> events;
    const int count = epoll_pwait2(epoll_, events.data(), kConnections, &wait, nullptr);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      Connection& connection = connections_[event.data.u64];
      if ((event.events & EPOLLOUT) != 0) Write(connection);
      if (connection.fd >= 0 && (event.events & ~uint32_t{EPOLLOUT}) != 0) Read(connection);
    }
    HPS_RETURN_IF_ERROR(status_);
    std::vector<OpenAnswer> answers;
    answers.swap(answers_);
    for (const OpenAnswer& answer : answers) on_answer(answer);
    return absl::OkStatus();
  }

  size_t in_flight() const override { return calls_.size() - free_.size() + answers_.size(); }
  size_t connections() const override { return connections_.size(); }

 private:
  static Call* CallOf(nghttp2_session* session, int32_t id) {
    return static_cast<Call*>(nghttp2_session_get_stream_user_data(session, id));
  }

  static int OnField(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                     size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t, void*) {
    Call* const call = CallOf(session, frame->hd.stream_id);
    const auto text = [](const uint8_t* bytes, size_t size) {
      return AsText(std::as_bytes(std::span(bytes, size)));
    };
    if (call == nullptr || text(name, name_bytes) != "grpc-status") return 0;
    const std::string_view code = text(value, value_bytes);
    std::from_chars(code.data(), code.data() + code.size(), call->status);
    return 0;
  }
  static int OnData(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data,
                    size_t bytes, void*) {
    Call* const call = CallOf(session, id);
    if (call != nullptr && call->compared)
      call->received.append(AsText(std::as_bytes(std::span(data, bytes))));
    return 0;
  }
  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* connection) {
    Connection& on = *static_cast<Connection*>(connection);
    if (frame->hd.type == NGHTTP2_SETTINGS) on.is_ready = true;
    // The server ends the connection: none of these should.
    return frame->hd.type == NGHTTP2_GOAWAY ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
  }
  static int OnClosed(nghttp2_session* session, int32_t id, uint32_t, void* connection) {
    Call* const call = CallOf(session, id);
    if (call != nullptr) static_cast<Connection*>(connection)->client->Finish(*call);
    return 0;
  }
  static ssize_t ReadRequest(nghttp2_session*, int32_t, uint8_t* buffer, size_t bytes_max,
                             uint32_t* flags, nghttp2_data_source* source, void*) {
    Call& call = *static_cast<Call*>(source->ptr);
    const size_t bytes = std::min(bytes_max, call.unsent.size());
    std::memcpy(buffer, call.unsent.data(), bytes);
    call.unsent.remove_prefix(bytes);
    if (call.unsent.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(bytes);
  }
  static const nghttp2_session_callbacks* Callbacks() {
    static const nghttp2_session_callbacks* const callbacks = [] {
      nghttp2_session_callbacks* made = nullptr;
      HPS_CHECK(nghttp2_session_callbacks_new(&made) == 0);
      nghttp2_session_callbacks_set_on_header_callback(made, OnField);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, OnData);
      nghttp2_session_callbacks_set_on_frame_recv_callback(made, OnFrame);
      nghttp2_session_callbacks_set_on_stream_close_callback(made, OnClosed);
      return made;
    }();
    return callbacks;
  }

  absl::Status Open(Connection& connection) {
    HPS_ASSIGN_OR_RETURN(connection.fd, ConnectWithoutWaiting(target_.address));
    connection.is_ready = connection.blocked = false;
    connection.unsent.clear();
    connection.unsent_begin = 0;
    nghttp2_session* session = nullptr;
    HPS_CHECK(nghttp2_session_client_new(&session, Callbacks(), &connection) == 0);
    connection.session.reset(session);
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                           kStreamWindowBytes};
    HPS_CHECK(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &window, 1) == 0);
    HPS_CHECK(nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                                    kConnectionWindowBytes) == 0);
    return Watch(connection, EPOLL_CTL_ADD, EPOLLIN);
  }

  absl::Status Watch(const Connection& connection, int operation, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = static_cast<uint64_t>(&connection - connections_.data());
    if (epoll_ctl(epoll_, operation, connection.fd, &event) == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("bench serve: epoll: ", std::strerror(errno)));
  }

  bool Submit(Connection& connection, Call& call) {
    const std::array fields = {
        Field(":method", "POST"),        Field(":scheme", "http"),
        Field(":path", kPath),           Field(":authority", target_.address),
        Field("te", "trailers"),         Field("content-type", "application/grpc"),
        Field("user-agent", "hps-bench")};
    const nghttp2_data_provider body = {.source = {.ptr = &call}, .read_callback = ReadRequest};
    return nghttp2_submit_request(connection.session.get(), nullptr, fields.data(), fields.size(),
                                  &body, &call) > 0;
  }

  // The answer of a call, whatever it is; its place is free then.
  void Finish(Call& call) {
    const bool has_status = call.status != kNoStatus;
    const OpenAnswer::Kind kind = has_status ? KindOf(call.status) : OpenAnswer::Kind::kFailed;
    if (call.compared && kind == OpenAnswer::Kind::kRows && !HasRows(call))
      status_ = absl::InternalError("bench serve: an answer has other rows than the planted ones");
    answers_.push_back({.kind = kind,
                        .code = has_status ? call.status : 0,
                        .arrival = call.arrival,
                        .end = Now()});
    call.connection = nullptr;
    free_.push_back(call.index);
  }

  bool HasRows(const Call& call) const {
    return std::string_view(call.received).ends_with(AsText(target_.rows[call.request]));
  }

  // Its calls fail.
  void Break(Connection& connection) {
    Close(connection);
    for (Call& call : calls_) {
      if (call.connection == &connection) Finish(call);
    }
  }

  static void Close(Connection& connection) {
    connection.session.reset();
    if (connection.fd >= 0) close(std::exchange(connection.fd, -1));
  }

  // What the session has to say, as far as the system takes it.
  void Write(Connection& connection) {
    for (;;) {
      if (connection.unsent_begin == connection.unsent.size() && !Fill(connection)) {
        if (connection.blocked) WaitToWrite(connection, false);
        return;
      }
      const std::string_view rest =
          std::string_view(connection.unsent).substr(connection.unsent_begin);
      const ssize_t sent = send(connection.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return WaitToWrite(connection, true);
      if (sent <= 0) return Break(connection);
      connection.unsent_begin += static_cast<size_t>(sent);
    }
  }

  void WaitToWrite(Connection& connection, bool waits) {
    if (std::exchange(connection.blocked, waits) == waits) return;
    const uint32_t events = waits ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (!Watch(connection, EPOLL_CTL_MOD, events).ok()) Break(connection);
  }

  // False: there is nothing.
  static bool Fill(Connection& connection) {
    connection.unsent.clear();
    connection.unsent_begin = 0;
    while (connection.unsent.size() < kUnsentBytesMax) {
      const uint8_t* data = nullptr;
      const ssize_t bytes = nghttp2_session_mem_send(connection.session.get(), &data);
      if (bytes <= 0) break;
      connection.unsent.append(AsText(std::as_bytes(std::span(data, static_cast<size_t>(bytes)))));
    }
    return !connection.unsent.empty();
  }

  void Read(Connection& connection) {
    const ssize_t got = recv(connection.fd, scratch_.data(), scratch_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const ssize_t taken = got <= 0
                              ? -1
                              : nghttp2_session_mem_recv(connection.session.get(), scratch_.data(),
                                                         static_cast<size_t>(got));
    if (taken < 0) return Break(connection);
    if (!connection.blocked) Write(connection);
  }

  static constexpr std::string_view kPath = "/inference.GRPCInferenceService/ModelInfer";

  const LoadTarget& target_;
  const int epoll_;
  std::vector<uint8_t> scratch_;
  std::vector<std::string> framed_;  // the requests
  std::array<Connection, kConnections> connections_;
  std::vector<Call> calls_;  // by index
  std::vector<size_t> free_;
  std::vector<OpenAnswer> answers_;  // that Poll has not handed on
  absl::Status status_;
  uint64_t sent_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OpenClient>> OpenGrpcClient(const LoadTarget& target,
                                                           size_t in_flight_max) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0)
    return absl::UnavailableError(absl::StrCat("bench serve: epoll: ", std::strerror(errno)));
  // Else a wait for the next arrival ends 50 us late.
  prctl(PR_SET_TIMERSLACK, 1);
  auto client = std::make_unique<GrpcOpenClient>(target, in_flight_max, epoll);
  HPS_RETURN_IF_ERROR(client->Connect());
  return client;
}

}  // namespace hps::bench
