#include "server/grpc/grpc_connection.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "server/grpc/grpc_server.h"

namespace hps::server {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Reads of one thread before it serves other connections.
constexpr size_t kReadsPerTurn = 4;
// Reads whose bytes are discarded, after the end of the session.
constexpr size_t kLingerReads = 16;

TimePoint Now() { return RealClock().Now(); }

}  // namespace

GrpcConnection::GrpcConnection(GrpcServer& server)
    : ServedConnection(server),
      server_(server),
      session_(*this, output_, *server.parts().counters),
      calls_(server) {}

void GrpcConnection::OnCallEnded(GrpcCall& call) {
  const bool drives = calls_.AddEnded(call, [this] { return Note(kAnswered); });
  if (drives) Drive(/*may_start=*/false);
}

bool GrpcConnection::OnTurn(GrpcCall& call) {
  calls_.HoldTurn(call);
  const bool drives = calls_.AddEnded(call, [this] { return Note(kAnswered); });
  if (drives) Drive(/*may_start=*/true);
  return drives;
}

// Without a stream, no request of the connection waits, so the socket can wait for its turn. With
// streams, the socket is read at once, and each request waits for its own turn: only then the order
// of their arrival is known.
bool GrpcConnection::IsIdle() const {
  return is_open() && !readable_ && session_.has_settings() && output_.is_empty() &&
         streams_.empty();
}

void GrpcConnection::OnNoMemory() {
  if (is_open() || state_ == State::kLingering) Close();
}

void GrpcConnection::Handle(uint32_t events, bool may_start) {
  calls_.BeginEvents(may_start);
  // If the connection is not idle, the request that the turn was for was read meanwhile. Later
  // requests wait for a turn of their own.
  if ((events & kTurn) != 0 && IsIdle()) calls_.GiveTurn();
  if ((events & kOpened) != 0) OpenNow();
  if ((events & kAnswered) != 0) EndCalls();
  if (state_ == State::kClosed || state_ == State::kEnding) return;
  if ((events & (kReady | kHangup)) != 0) readable_ = true;
  if ((events & kHangup) != 0) hung_up_ = true;
  if ((events & (kCut | kReset)) != 0) return Close();
  if ((events & kTick) != 0) HandleTick();
  Advance(may_start);
}

void GrpcConnection::OpenNow() {
  OpenTransport();
  state_ = State::kOpen;
  readable_ = hung_up_ = false;
  calls_.DropTurn();
  const TimePoint now = Now();
  arrived_at_ = idle_since_ = now;
  goaway_until_ = kNoDeadline;
  keepalive_.OnRead(now);
  const ServerConfig& config = *server_.parts().config;
  state_until_ = now + config.header_timeout;
  NoteDeadline(now + std::min(config.header_timeout, config.idle_timeout));
  if (!session_.Open() || !Watch()) {
    server_.parts().counters->CountRefused(RefusedReason::kConnections);
    Close();
  }
}

// ---- Reading and writing ------------------------------------------------------------------------

void GrpcConnection::Advance(bool may_read) {
  if (is_open()) {
    while (is_open() && readable_ && may_read && turn_reads_ < kReadsPerTurn) Read();
    if (state_ == State::kOpen && server_.draining()) BeginDrain();
    if (is_open()) Write();
    if (is_open() && readable_) Wake();
  }
  if (state_ == State::kLingering) Linger();
}

void GrpcConnection::Read() {
  ++turn_reads_;
  std::array<std::byte, kReadBytes> room;
  const IoResult result = transport_.Read(room);
  switch (result.state) {
    case IoState::kDone:
      break;
    case IoState::kDrained:
      readable_ = hung_up_;
      break;
    case IoState::kBlocked:
      readable_ = false;
      calls_.DropTurn();
      ForgetArrival();
      return;
    case IoState::kEnd:
    case IoState::kFailed:
      return Close();
  }
  const TimePoint now = Now();
  keepalive_.OnRead(now);
  arrived_at_ = TakeArrival(now);
  if (!session_.Receive(std::span(room).first(result.bytes), now)) Close();
  if (!readable_) calls_.DropTurn();  // later requests wait for a turn of their own
}

void GrpcConnection::Write() {
  for (;;) {
    if (!session_.FillOutput()) return Close();
    if (output_.is_empty()) break;
    const IoState state = output_.Write(transport_, Now(), server_.parts().config->write_timeout);
    if (state == IoState::kFailed) return Close();
    NoteDeadline(output_.deadline());
    OnFlushed();
    if (state == IoState::kBlocked) return;
  }
  if (session_.has_ended()) BeginLinger();
}

// Calls that are still looked up come back later.
void GrpcConnection::BeginLinger() {
  state_ = State::kLingering;
  for (size_t i = streams_.size(); i-- > 0;) {
    if (streams_[i]->is_open()) CloseStream(*streams_[i], /*cut=*/true);
  }
  session_.Close();
  transport_.EndSending();
  state_until_ = Now() + server_.parts().linger_timeout;
  readable_ = true;
  NoteDeadline(state_until_);
}

// A stream's bytes may all be sent while other streams' bytes wait.
void GrpcConnection::OnFlushed() {
  output_.TakeFlushed([this](Http2Stream& flushed) {
    auto& stream = static_cast<GrpcStream&>(flushed);
    if (!stream.is_open()) return Recycle(stream);
    Tell(stream, [&] { stream.OnFlushed(); });
  });
}

void GrpcConnection::Linger() {
  std::array<std::byte, kReadBytes> thrown_away;
  for (size_t i = 0; i < kLingerReads; ++i) {
    const IoResult result = transport_.Read(thrown_away);
    if (result.state == IoState::kBlocked) return;
    // The client's end may have been announced before; reading finds it again.
    if (result.state != IoState::kDone && result.state != IoState::kDrained) return Close();
  }
  Close();  // the client goes on sending
}

void GrpcConnection::Close() {
  state_ = State::kEnding;
  SetDeadline(kNoDeadline);
  transport_.Close();
  session_.Close();
  output_.Clear();
  // From the end, because Recycle replaces a stream by the last one.
  for (size_t i = streams_.size(); i-- > 0;) {
    GrpcStream& stream = *streams_[i];
    stream.is_open() ? CloseStream(stream, /*cut=*/true) : Recycle(stream);
  }
  while (TakeRunnable() != nullptr) {
  }
  EndIfUnused();
}

// ---- Calls --------------------------------------------------------------------------------------

bool GrpcConnection::MayBegin() {
  if (!calls_.MayBegin()) return false;
  UseTurn();
  return true;
}

// The next runnable call whose client has not gone.
GrpcCall* GrpcConnection::TakeRunnable() {
  while (GrpcCall* const call = calls_.TakeRunnable()) {
    if (call->stream().is_open()) return call;
    call->execution = GrpcCall::Execution::kNone;
    Recycle(call->stream());
  }
  return nullptr;
}

void GrpcConnection::EndCalls() {
  GrpcCallList ended = calls_.TakeEnded();
  while (GrpcCall* const call = ended.PopFront()) {
    GrpcStream& stream = call->stream();
    const bool has_turn =
        std::exchange(call->execution, GrpcCall::Execution::kNone) == GrpcCall::Execution::kQueued;
    if (stream.is_open()) Tell(stream, [&] { has_turn ? stream.OnTurn() : stream.OnCallEnded(); });
    // A runnable call keeps its turn until its lookup begins.
    if (call->execution != GrpcCall::Execution::kRunnable) calls_.ReleaseTurn(*call);
    if (!stream.is_open()) Recycle(stream);
  }
}

// Null: the server has no capacity for another call, or no memory.
Http2Stream* GrpcConnection::OnNewStream(int32_t id) {
  set_is_new(false);
  try {
    if (streams_.size() == streams_.capacity()) streams_.reserve(2 * streams_.size() + 1);
    GrpcStream* const stream = server_.TakeStream(streams_.size());
    if (stream == nullptr) return nullptr;
    stream->index = streams_.size();
    streams_.push_back(stream);
    stream->Begin(*this, id);
    return stream;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void GrpcConnection::OnStreamClosed(Http2Stream& stream) {
  CloseStream(static_cast<GrpcStream&>(stream), /*cut=*/false);
}

void GrpcConnection::CloseStream(GrpcStream& stream, bool cut) {
  stream.state = Http2Stream::State::kClosed;
  calls_.ForgetTurn(stream.call());
  stream.OnClosed(cut);
  Recycle(stream);
}

// Returns the stream to the server when it is closed and no longer in use.
void GrpcConnection::Recycle(GrpcStream& stream) {
  const bool is_called = stream.call().execution != GrpcCall::Execution::kNone;
  if (stream.is_open() || is_called || stream.is_in_output()) return;
  streams_.back()->index = stream.index;
  streams_[stream.index] = streams_.back();
  streams_.pop_back();
  stream.End();
  server_.ReturnStream(stream);
  if (!streams_.empty()) return;
  idle_since_ = Now();
  NoteDeadline(idle_since_ + server_.parts().config->idle_timeout);
  EndIfUnused();
}

void GrpcConnection::EndIfUnused() {
  if (state_ != State::kEnding || !streams_.empty()) return;
  state_ = State::kClosed;
  EndConnection();
}

// ---- Time ---------------------------------------------------------------------------------------

void GrpcConnection::HandleTick() {
  if (state_ == State::kOpen && server_.draining()) BeginDrain();
  const TimePoint now = Now();
  if (IsLate(now)) CheckTime(now);
}

// Ends what is late, and notes the next deadline.
void GrpcConnection::CheckTime(TimePoint now) {
  const ServerConfig& config = *server_.parts().config;
  SetDeadline(kNoDeadline);
  if (state_ == State::kLingering) {
    if (now >= state_until_) return Close();
    return NoteDeadline(state_until_);
  }
  const TimePoint settings_until = session_.has_settings() ? kNoDeadline : state_until_;
  if (now >= settings_until || output_.IsLate(now, transport_.taken_bytes())) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kTimeout);
    return Close();
  }
  NoteDeadline(std::min(settings_until, output_.deadline()));
  TellOpenStreams([now](GrpcStream& stream) { stream.OnTime(now); });
  if (now >= goaway_until_) {
    session_.SubmitGoAway();
    goaway_until_ = kNoDeadline;
  } else if (streams_.empty() && goaway_until_ == kNoDeadline) {
    const TimePoint idle_until = idle_since_ + config.idle_timeout;
    now >= idle_until ? BeginGoAway() : NoteDeadline(idle_until);
  }
  NoteDeadline(goaway_until_);
  switch (keepalive_.Check(now)) {
    case Keepalive::Action::kNone:
      break;
    case Keepalive::Action::kPing:
      session_.SubmitPing();
      break;
    case Keepalive::Action::kClose:
      return Close();
  }
  NoteDeadline(keepalive_.deadline());
}

void GrpcConnection::BeginDrain() {
  state_ = State::kDraining;
  TellOpenStreams([](GrpcStream& stream) { stream.OnDrain(); });
  BeginGoAway();
}

// Calls that have begun or are under way to the server are answered, and then the connection ends.
void GrpcConnection::BeginGoAway() {
  session_.SubmitShutdownNotice();
  const ProtocolParts& parts = server_.parts();
  goaway_until_ = Now() + std::min(parts.linger_timeout, parts.config->drain_timeout / 4);
  NoteDeadline(goaway_until_);
}

template <typename Act>
void GrpcConnection::TellOpenStreams(const Act& act) {
  for (size_t i = streams_.size(); i-- > 0;) {
    GrpcStream& stream = *streams_[i];
    if (stream.is_open()) Tell(stream, [&] { act(stream); });
  }
}

}  // namespace hps::server
