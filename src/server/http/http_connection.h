// One HTTP connection: reads a request (HttpRequestReader), has it answered, in place or by an
// HttpCall, and writes the response (HttpResponseWriter); then the next request. Requests of one
// connection are answered in order.
//
// Memory: an idle connection holds only itself. A request takes an input buffer, a buffer for a
// body that does not fit there, and a buffer for its rows, all from the server's pool.
//
// Thread-safe: what ServedConnection says, and OnCallEnded. Everything else belongs to the thread
// that drives the connection (server/net/served_connection.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/http/api.h"
#include "server/http/http_call.h"
#include "server/http/http_error.h"
#include "server/http/http_request_reader.h"
#include "server/http/http_response_writer.h"
#include "server/http/route.h"
#include "server/net/send_patience.h"
#include "server/net/served_connection.h"

namespace hps::server {

// A client that ends its sending during a lookup may be gone, or may wait for the response. It is
// taken to wait for this long.
inline constexpr Duration kGoneTimeout = std::chrono::seconds(1);

class HttpServer;

class HttpConnection final : public ServedConnection {
 public:
  explicit HttpConnection(HttpServer& server);

  // The call has ended. Any thread.
  void OnCallEnded();

 private:
  enum class State : uint8_t {
    kClosed,
    kReading,
    kCalling,    // the call runs
    kAbandoned,  // the call runs, and the connection closes when it has ended
    kWriting,
    kLingering,  // waits for the client's end, so that it can read the last response
  };
  enum class After : uint8_t {  // the response
    kNextRequest,
    kClose,
    kCloseUnread,  // as kClose; some of what the client sent will not be read
  };

  // ServedConnection
  void BeginTurn() override { turn_requests_ = 0; }
  void Handle(uint32_t events, bool may_start) override;
  void OnNoMemory() override;
  InferenceCall* TakeCall(bool may_start) override;
  void PutBack(InferenceCall& call) override;
  bool has_calls() const override { return false; }
  bool IsIdle() const override;
  void OnDrivenElsewhere(uint32_t events) override;

  bool has_call() const { return state_ == State::kCalling || state_ == State::kAbandoned; }
  bool awaits_request() const {
    return state_ == State::kReading && reader_.is_in_head() && !reader_.has_input();
  }

  void Advance(bool may_start);
  void OpenNow();
  void Close();
  bool HandleTick();
  bool HandleLateTick();
  void OnClientGone(uint32_t events);
  void Abandon();

  // Reading.
  void BeginRequest(TimePoint now);
  void ReadRequest();
  bool ReadMore();
  void NoteArrival();
  bool Parse();
  void OnHead();
  bool SendContinue();
  uint64_t body_bytes_max() const;

  // Answering.
  void Answer();
  void StartInfer(std::span<char> body);
  void StartUpdate(std::span<char> body);
  void StartControl(std::span<char> body);
  void EndCall();
  void SendRows();
  void SendRefusal(const absl::Status& status);
  void SendNoRoom(const absl::Status& status);
  void SendError(HttpError error);
  void SendError(const absl::Status& status, std::optional<BadRequestReason> reason = {});
  void SendApi(absl::StatusOr<Page> answer);
  void Send(int code, std::string_view content_type, std::string_view extra_fields);
  HttpError NoRoom(const absl::Status& status);
  void Refuse(HttpError error);

  // Writing.
  bool WriteOn();
  void EndAnswer();
  void ReleaseRequest();
  void EndRequest();
  void Linger();

  HttpServer& server_;
  HttpRequestReader reader_;
  HttpCall call_;
  HttpResponseWriter writer_;
  SendPatience patience_;
  State state_ = State::kClosed;
  After after_ = After::kNextRequest;
  bool run_pending_ = false;  // the call is looked up when the connection is not driven any more
  bool readable_ = false;     // a read may find something
  bool hung_up_ = false;      // the client's end was announced: reads have to find it
  size_t turn_requests_ = 0;  // that this turn of the driving thread has begun
  struct {
    TimePoint at{};
    Duration socket_wait{};  // until it was read
  } arrival_;                // of the request
  Route route_;
  bool is_dashboard_file_ = false;        // route_ is one
  std::optional<HttpError> early_error_;  // the head alone shows that the request is refused
};

}  // namespace hps::server
