// One gRPC connection: moves bytes between its socket and its HTTP/2 session (GrpcSession), owns
// the session's streams, and passes events to them. Several requests of a connection can be
// answered at the same time. If several calls are ready, each lookup thread takes one.
//
// Memory: an idle connection has its session. A call takes memory for its request and its response
// from the server's pool. Rows are sent from the memory into which they were looked up.
//
// Thread-safe: OnCallEnded, OnTurn and what ServedConnection documents as thread-safe. Only the
// thread that drives the connection (server/net/served_connection.h) may call the rest; it needs no
// lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "server/grpc/grpc_call_queue.h"
#include "server/grpc/grpc_session.h"
#include "server/grpc/grpc_stream.h"
#include "server/grpc/http2_output.h"
#include "server/grpc/keepalive.h"
#include "server/net/served_connection.h"

namespace hps::server {

class GrpcServer;

class GrpcConnection final : public ServedConnection, private GrpcSession::Handler {
 public:
  explicit GrpcConnection(GrpcServer& server);

  // The lookup or the slow method of the call has ended. Any thread.
  void OnCallEnded(GrpcCall& call);
  // The call's queued request may begin. Any lookup thread. False: another thread drives the
  // connection and handles the event.
  bool OnTurn(GrpcCall& call);

  // ---- For its streams.

  GrpcSession& session() { return session_; }
  GrpcCallQueue& calls() { return calls_; }
  // When the bytes that are handled now were read, and when the socket had them.
  TimePoint read_at() const { return keepalive_.read_at(); }
  TimePoint arrived_at() const { return arrived_at_; }
  // Ensures that GrpcStream::OnTime is called at this time.
  using ServedConnection::NoteDeadline;
  // Whether a request that is complete now may begin before all requests that wait.
  bool MayBegin();
  // How many open streams of requests, or of health's Watch, it has; for StreamLimiter.
  size_t* place_count(bool is_watch) { return &place_counts_[is_watch ? 1 : 0]; }

 private:
  enum class State : uint8_t {
    kClosed,
    kOpen,
    kDraining,   // open; the streams know that the server drains
    kLingering,  // the session has ended; waits for the client's end
    kEnding,     // the socket is closed; waits for the calls
  };

  // ServedConnection
  void BeginTurn() override { turn_reads_ = 0; }
  void Handle(uint32_t events, bool may_start) override;
  void OnNoMemory() override;
  InferenceCall* TakeCall(bool may_start) override { return may_start ? TakeRunnable() : nullptr; }
  void PutBack(InferenceCall& call) override { calls_.PutBack(static_cast<GrpcCall&>(call)); }
  bool has_calls() const override { return calls_.has_runnable(); }
  bool IsIdle() const override;
  void OnDrivenElsewhere(uint32_t /*events*/) override {}

  // GrpcSession::Handler
  Http2Stream* OnNewStream(int32_t id) override;
  void OnStreamClosed(Http2Stream& stream) override;

  bool is_open() const { return state_ == State::kOpen || state_ == State::kDraining; }

  void OpenNow();
  void Advance(bool may_read);
  void Read();
  void Write();
  void OnFlushed();
  void BeginLinger();
  void Linger();
  void Close();

  GrpcCall* TakeRunnable();
  void EndCalls();
  template <typename Act>
  void TellOpenStreams(const Act& act);
  void CloseStream(GrpcStream& stream, bool cut);
  void Recycle(GrpcStream& stream);
  void EndIfUnused();

  void HandleTick();
  void CheckTime(TimePoint now);
  void BeginDrain();
  void BeginGoAway();

  GrpcServer& server_;
  State state_ = State::kClosed;
  bool readable_ = false;    // a read may find something
  bool hung_up_ = false;     // the client's end was announced: reads have to find it
  size_t turn_reads_ = 0;    // reads in this turn of the driving thread
  TimePoint arrived_at_{};   // see arrived_at()
  TimePoint state_until_{};  // deadline of the client's SETTINGS, or of kLingering
  TimePoint idle_since_{};   // if there are no streams
  // When a client that was asked to begin no more calls has to have answered.
  TimePoint goaway_until_ = kNoDeadline;
  Keepalive keepalive_;
  Http2Output output_;
  GrpcSession session_;
  std::vector<GrpcStream*> streams_;
  std::array<size_t, 2> place_counts_{};  // open streams: of requests, of health's Watch
  GrpcCallQueue calls_;
};

}  // namespace hps::server
