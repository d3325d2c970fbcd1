// The HTTP/2 session of one gRPC connection: wraps nghttp2's session. Received bytes become events
// of streams; what streams submit becomes frames in the output.
//
// The session ends a connection whose client floods it: FloodLimit, nghttp2's limit on resets, and
// limits on header fields and acknowledgements. It also ends one for what nghttp2 would ignore:
// header fields of a stream id that the client has skipped, and PRIORITY of stream 0. No exception
// leaves a callback of nghttp2.
//
// Events come from within Receive and FillOutput only. A stream may submit from within its events.
//
// Not thread-safe.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "server/core/server_counters.h"
#include "server/grpc/flood_limit.h"
#include "server/grpc/http2_output.h"
#include "server/grpc/http2_stream.h"

namespace hps::server {

// How much of a stream, and of a connection, the client may send before the server reads it. The
// connection's window is given back at once.
inline constexpr int32_t kStreamWindowBytes = 256 << 10;
inline constexpr int32_t kConnectionWindowBytes = 16 << 20;
inline constexpr uint32_t kConnectionCallsMax = 1024;

class GrpcSession {
 public:
  // Owns the streams.
  class Handler {
   public:
    // A call begins. Null: there is no capacity or no memory for it; the session refuses the call.
    // The stream lives until OnStreamClosed, or Close.
    virtual Http2Stream* OnNewStream(int32_t id) = 0;
    virtual void OnStreamClosed(Http2Stream& stream) = 0;

   protected:
    ~Handler() = default;
  };

  // All are borrowed.
  GrpcSession(Handler& handler, Http2Output& output, ServerCounters& counters)
      : handler_(handler), output_(output), counters_(counters) {}

  // Begins a session; its first frame is the server's SETTINGS. False: no memory.
  bool Open();
  // Forgets the streams without further events.
  void Close() { session_.reset(); }

  // Handles received bytes. False: the connection has to be closed. Bad requests are counted.
  bool Receive(std::span<const std::byte> bytes, TimePoint now);
  // Moves frames to the output until the output is full. False: the connection has to be closed.
  bool FillOutput();

  // Whether the client's SETTINGS have arrived.
  bool has_settings() const { return has_settings_; }
  // Whether both sides have ended the session and nothing is left to send.
  bool has_ended() const;

  // ---- What is sent. REQUIRES: between Open and Close; the stream is open.

  // Lets the client send `bytes` more of the stream.
  void Consume(const Http2Stream& stream, size_t bytes);
  // Sends the unsent bytes of stream.response, and its status if it ends.
  void SubmitAnswer(Http2Stream& stream);
  // Sends the status of stream.response, which has no unsent bytes.
  void SubmitEnd(Http2Stream& stream);
  // Answers with an HTTP status, for a request that is not gRPC.
  void SubmitHttpStatus(Http2Stream& stream, std::string_view code);
  // Resets the stream: CANCEL.
  void SubmitReset(const Http2Stream& stream);
  void SubmitPing();
  // Asks the client to begin no more calls. SubmitGoAway follows by itself when the client has
  // answered, so that calls that were under way to the server are served.
  void SubmitShutdownNotice();
  // Takes no more streams. The session ends when the open streams have ended.
  void SubmitGoAway();

 private:
  struct DeleteSession {
    void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
  };

  static const nghttp2_session_callbacks* Callbacks();

  // What nghttp2 calls. Returns 0 or an error of nghttp2.
  void OnBeginFrame(const nghttp2_frame_hd& head);
  int OnBeginFields(const nghttp2_frame& frame);
  int OnField(int32_t id, std::string_view name, std::string_view value);
  void OnFrame(const nghttp2_frame& frame);
  void OnPing(const nghttp2_ping& ping, bool is_ack);
  int OnData(int32_t id, std::span<const std::byte> bytes);
  void OnClosed(int32_t id);
  void OnSent(const nghttp2_frame& frame);
  ssize_t NextData(const Http2Stream& stream, size_t bytes_max, uint32_t* flags);
  int SendData(Http2Stream& stream, std::span<const std::byte> head, size_t bytes);

  // Null: the stream was refused, or has ended.
  Http2Stream* StreamOf(int32_t id) const {
    return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session_.get(), id));
  }
  bool MayHaveFields(int32_t id);
  void RefuseStream(int32_t id);
  void EndEarly(int32_t id, uint32_t error);
  void End(uint32_t error);
  void Check(int result);

  Handler& handler_;
  Http2Output& output_;
  ServerCounters& counters_;
  std::unique_ptr<nghttp2_session, DeleteSession> session_;
  FloodLimit flood_limit_;
  TimePoint received_at_{};         // the bytes that are handled now
  size_t refused_field_bytes_ = 0;  // of the last call that was refused for lack of capacity
  int32_t fields_id_ = 0;           // of a list of fields whose last frame has not come; 0: none
  int32_t newest_id_ = 0;           // of the client's streams
  uint64_t opened_ids_ = 0;         // bit i: the client has opened stream newest_id_ - 2 * i
  bool has_settings_ = false;
  bool is_broken_ = false;  // nghttp2 has reported a fatal error
};

}  // namespace hps::server
