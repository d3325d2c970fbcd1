// One gRPC connection: HTTP/2 by libnghttp2 over a socket that the event loop watches.
//
// The thread that drives the connection (server/net/served_connection.h) owns nghttp2's session,
// which needs no lock. If several calls are ready, each lookup thread takes one.
//
// Memory: an idle connection has its session. A call takes memory for its request and its response
// from the server's pool. Rows are sent from the memory into which they were looked up.
//
// Limits, besides those of HTTP/2 (windows, streams, header lists), on what costs a client little:
// streams that it resets (nghttp2's rate limit), CONTINUATION frames, pings, and frames without
// fields or data (FloodLimit).
//
// Thread-safe: OnCallEnded, OnTurn and what ServedConnection documents as thread-safe. Only the
// driving thread may call the rest.
#pragma once

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/grpc/flood_limit.h"
#include "server/grpc/grpc_stream.h"
#include "server/grpc/output_queue.h"
#include "server/net/send_patience.h"
#include "server/net/served_connection.h"

namespace hps::server {

class GrpcServer;

class GrpcConnection final : public ServedConnection {
 public:
  explicit GrpcConnection(GrpcServer& server);
  ~GrpcConnection() override;

  // The lookup or the slow method of the stream has ended. Any thread.
  void OnCallEnded(GrpcStream& stream);
  // The stream's queued request may begin. Any lookup thread. False: another thread drives the
  // connection and handles the event.
  bool OnTurn(GrpcStream& stream);

  // ---- For its streams.

  // When what is read now was read, and when it was there to be read.
  TimePoint read_at() const { return read_at_; }
  TimePoint arrived_at() const { return arrived_at_; }
  // The sweep comes at this time, or earlier.
  using ServedConnection::NoteDeadline;
  // Whether a request that is whole now may begin before anything else that waits.
  bool MayBegin();
  // Queues the stream's request if it may not begin at once.
  void AwaitTurn(GrpcStream& stream);
  // Removes it from the queue. False: it was not queued, or has just been dispatched.
  bool ForgetTurn(GrpcStream& stream);
  // The lookup begins as soon as a thread is free.
  void AddRunnable(GrpcStream& stream);
  // The client may send as much again.
  void Consume(const GrpcStream& stream, size_t bytes);
  absl::Status TakePlace(bool is_watch);
  void ReturnPlace(bool is_watch);
  // What is unsent of the stream is to be sent, and its status where it ends.
  void SubmitAnswer(GrpcStream& stream);
  void SubmitEnd(GrpcStream& stream);
  void SubmitHttpStatus(GrpcStream& stream, std::string_view code);
  void ResetStream(GrpcStream& stream);

 private:
  friend class GrpcSession;  // what nghttp2 calls

  enum class State : uint8_t { kClosed, kOpen, kLingering, kEnding };

  // What is taken from the session at a time, and written before more is.
  static constexpr size_t kOutputBytesMax = size_t{256} << 10;

  struct DeleteSession {
    void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
  };

  bool NoteStream(GrpcStream& stream);
  void ReleaseTurn(GrpcStream& stream);

  // ServedConnection
  void BeginTurn() override { turn_reads_ = 0; }
  void Handle(uint32_t events, bool may_start) override;
  void OnNoMemory() override;
  InferenceCall* TakeCall(bool may_start) override;
  void PutBack(InferenceCall& call) override;
  bool has_calls() const override { return runnable_head_ != nullptr; }
  bool IsIdle() const override;
  void OnDrivenElsewhere(uint32_t /*events*/) override {}

  void OpenNow();
  void Advance(bool may_read);
  void Read();
  void Feed(std::span<const std::byte> bytes);
  bool Fill();
  void Write();
  void OnFlushed();
  void NoteBlock(bool is_blocked);
  bool IsOutOfPatience(TimePoint now);
  void BeginLinger();
  void Linger();
  void Close();
  void HandleTick();
  void CheckTime(TimePoint now);
  void BeginDrain();
  void GoAway();
  void Refuse(uint32_t error);
  GrpcStream* TakeRunnable();
  void EndCalls();
  void CloseStream(GrpcStream& stream, bool cut);
  void Recycle(GrpcStream& stream);
  void Recycle();  // the connection itself
  void Check(int result);

  // What has come, from nghttp2's callbacks.
  GrpcStream* NewStream();
  int BeginFields(int32_t id);
  void CheckIdle();
  void CountUseful(size_t payload_bytes);
  void CountPing();
  void EndEarly(int32_t id, uint32_t error);
  void OnSent(const nghttp2_frame& frame);
  int SendData(GrpcStream& stream, std::span<const std::byte> head, size_t bytes);
  ssize_t NextData(GrpcStream& stream, size_t bytes_max, uint32_t* flags);

  GrpcServer& server_;

  Mutex ended_mutex_;
  // Calls that have ended or have their turn, the last one first.
  GrpcStream* ended_ HPS_GUARDED_BY(ended_mutex_) = nullptr;

  State state_ = State::kClosed;
  bool readable_ = false;    // a read may find something
  bool hung_up_ = false;     // reads announce the end by themselves from now on
  bool is_broken_ = false;   // nghttp2 can't go on
  bool draining_ = false;    // the streams have been told
  bool is_blocked_ = false;  // the client lets it wait
  bool has_settings_ = false;
  bool may_begin_ = false;  // one request, of what is handled now
  bool has_turn_ = false;   // ... which need not wait
  size_t turn_reads_ = 0;

  std::unique_ptr<nghttp2_session, DeleteSession> session_;
  OutputQueue out_;
  std::vector<GrpcStream*> streams_;
  std::vector<GrpcStream*> flushing_;  // with views in out_
  GrpcStream* runnable_head_ = nullptr;
  GrpcStream* runnable_tail_ = nullptr;
  size_t place_count_ = 0;
  size_t watch_count_ = 0;

  TimePoint read_at_{};
  TimePoint arrived_at_{};
  TimePoint opened_at_{};
  TimePoint idle_since_{};
  SendPatience patience_;
  TimePoint patience_until_{};
  uint64_t blocked_end_ = 0;  // of the output that the block began with
  TimePoint linger_until_{};
  TimePoint pinged_at_{};  // by the server; the epoch: it waits for no answer
  FloodLimit flood_limit_;
  size_t refused_field_bytes_ = 0;  // of the last call that was refused for lack of capacity
};

}  // namespace hps::server
