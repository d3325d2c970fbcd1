#include "server/grpc/grpc_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_session.h"

namespace hps::server {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Reads of one thread before it serves other connections.
constexpr size_t kReadsPerTurn = 4;
// Reads whose bytes are discarded, after the end of the connection.
constexpr size_t kLingerReads = 16;
// A client that has said nothing for so long is asked whether it is there, and then has so long.
constexpr Duration kKeepaliveTime = std::chrono::seconds(120);
constexpr Duration kKeepaliveTimeout = std::chrono::seconds(20);

TimePoint Now() { return RealClock().Now(); }

}  // namespace

GrpcConnection::GrpcConnection(GrpcServer& server) : ServedConnection(server), server_(server) {}

GrpcConnection::~GrpcConnection() = default;

absl::Status GrpcConnection::TakePlace(bool is_watch) {
  return is_watch ? server_.watch_places().Take(&watch_count_)
                  : server_.places().Take(&place_count_);
}

void GrpcConnection::ReturnPlace(bool is_watch) {
  if (is_watch) return server_.watch_places().Return(&watch_count_);
  server_.places().Return(&place_count_);
}

bool GrpcConnection::NoteStream(GrpcStream& stream) {
  // Under the lock: who finds the stream in the list finds this thread gone.
  MutexLock lock(ended_mutex_);
  stream.next = std::exchange(ended_, &stream);
  return Note(kAnswered);
}

void GrpcConnection::OnCallEnded(GrpcStream& stream) {
  if (NoteStream(stream)) Drive(/*may_start=*/false);
}

bool GrpcConnection::OnTurn(GrpcStream& stream) {
  stream.holds_turn = true;
  server_.HoldTurn();
  if (!NoteStream(stream)) return false;
  Drive(/*may_start=*/true);
  return true;
}

void GrpcConnection::ReleaseTurn(GrpcStream& stream) {
  if (std::exchange(stream.holds_turn, false)) server_.ReleaseTurn();
}

InferenceCall* GrpcConnection::TakeCall(bool may_start) {
  GrpcStream* const stream = may_start ? TakeRunnable() : nullptr;
  if (stream != nullptr) ReleaseTurn(*stream);
  return stream;
}

void GrpcConnection::PutBack(InferenceCall& call) {
  auto& stream = static_cast<GrpcStream&>(call);
  // The connection gets no other turn before this call's lookup begins.
  stream.holds_turn = true;
  server_.HoldTurn();
  stream.execution = GrpcStream::Execution::kRunnable;
  stream.next = runnable_head_;
  runnable_head_ = &stream;
  if (runnable_tail_ == nullptr) runnable_tail_ = &stream;
}

// Without a call no client waits for it. What comes beside calls is read in turns, and each call
// that begins waits by itself: a socket could not say which of them came when.
bool GrpcConnection::IsIdle() const {
  return state_ == State::kOpen && !readable_ && has_settings_ && out_.empty() && streams_.empty();
}

void GrpcConnection::OnNoMemory() {
  if (state_ == State::kOpen || state_ == State::kLingering) Close();
}

void GrpcConnection::Handle(uint32_t events, bool may_start) {
  may_begin_ = may_start;
  // What the turn was for may have been read meanwhile: what comes later waits for its own.
  if ((events & kTurn) != 0 && IsIdle()) has_turn_ = true;
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
  readable_ = hung_up_ = is_broken_ = draining_ = is_blocked_ = has_settings_ = has_turn_ = false;
  read_at_ = arrived_at_ = opened_at_ = idle_since_ = Now();
  pinged_at_ = {};
  flood_limit_ = FloodLimit();
  session_.reset(GrpcSession::Create(*this));
  const ServerConfig& config = *server_.parts().config;
  NoteDeadline(opened_at_ + std::min(config.header_timeout, config.idle_timeout));
  if (session_ == nullptr || !Watch()) {
    server_.parts().counters->CountRefused(RefusedReason::kConnections);
    Close();
  }
}

// ---- Reading and writing ------------------------------------------------------------------------

void GrpcConnection::Advance(bool may_read) {
  if (state_ == State::kOpen) {
    while (state_ == State::kOpen && readable_ && may_read && turn_reads_ < kReadsPerTurn) Read();
    if (state_ == State::kOpen && server_.draining() && !draining_) BeginDrain();
    if (state_ == State::kOpen) Write();
    if (state_ == State::kOpen && readable_) Wake();
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
      readable_ = has_turn_ = false;
      ForgetArrival();
      return;
    case IoState::kEnd:
    case IoState::kFailed:
      return Close();
  }
  read_at_ = Now();
  arrived_at_ = TakeArrival(read_at_);
  Feed(std::span(room).first(result.bytes));
  if (!readable_) has_turn_ = false;  // what comes later has its own
}

void GrpcConnection::Feed(std::span<const std::byte> bytes) {
  flood_limit_.OnReceived(bytes.size());
  const ssize_t taken =
      nghttp2_session_mem_recv(session_.get(), AsAligned<uint8_t>(bytes.data()), bytes.size());
  if (taken >= 0 && !is_broken_) return CheckIdle();
  // What is no HTTP/2, floods, or finds no memory.
  if (taken != NGHTTP2_ERR_NOMEM)
    server_.parts().counters->CountBadRequest(BadRequestReason::kProtocol);
  Close();
}

// Takes what the session has to send. False: it can't go on.
bool GrpcConnection::Fill() {
  while (out_.bytes() < kOutputBytesMax) {
    const uint8_t* data = nullptr;
    const ssize_t bytes = nghttp2_session_mem_send(session_.get(), &data);
    if (bytes < 0) return false;
    if (bytes == 0) return !is_broken_;
    out_.AddCopy(std::as_bytes(std::span(data, static_cast<size_t>(bytes))));
  }
  return true;
}

void GrpcConnection::Write() {
  for (;;) {
    if (!Fill()) return Close();
    if (out_.empty()) break;
    const IoState state = out_.WriteTo(transport_);
    if (state == IoState::kFailed) return Close();
    NoteBlock(state == IoState::kBlocked);
    OnFlushed();
    if (state == IoState::kBlocked) return;
  }
  if (nghttp2_session_want_read(session_.get()) != 0 ||
      nghttp2_session_want_write(session_.get()) != 0) {
    return;
  }
  BeginLinger();
}

// A block lasts until the client has taken all that it began with; a part of it buys no more time.
void GrpcConnection::NoteBlock(bool is_blocked) {
  if (out_.sent() >= blocked_end_) is_blocked_ = false;
  if (!is_blocked || std::exchange(is_blocked_, true)) return;
  blocked_end_ = out_.end();
  patience_until_ =
      patience_.Begin(Now(), server_.parts().config->write_timeout, transport_.taken_bytes());
  NoteDeadline(patience_until_);
}

// The client has let the connection wait for longer than it may.
bool GrpcConnection::IsOutOfPatience(TimePoint now) {
  if (!is_blocked_ || now < patience_until_) return false;
  const std::optional<TimePoint> until = patience_.Extend(now, transport_.taken_bytes());
  patience_until_ = until.value_or(now);
  return !until.has_value();
}

// Both have said that they end. Calls that are looked up yet come back without it.
void GrpcConnection::BeginLinger() {
  state_ = State::kLingering;
  for (size_t i = streams_.size(); i-- > 0;) {
    if (streams_[i]->is_open()) CloseStream(*streams_[i], /*cut=*/true);
  }
  session_.reset();
  transport_.EndSending();
  linger_until_ = Now() + server_.parts().linger_timeout;
  readable_ = true;
  NoteDeadline(linger_until_);
}

// Tells the streams all of whose bytes in the output have been sent, though others' wait.
void GrpcConnection::OnFlushed() {
  size_t kept = 0;
  for (size_t i = 0; i < flushing_.size(); ++i) {
    GrpcStream* const stream = flushing_[i];
    if (stream->output_end > out_.sent()) {
      flushing_[kept++] = stream;
      continue;
    }
    stream->in_output = false;
    if (!stream->is_open()) {
      Recycle(*stream);
      continue;
    }
    Tell(*stream, [&] { stream->OnFlushed(); });
  }
  flushing_.resize(kept);
}

void GrpcConnection::Linger() {
  std::array<std::byte, kReadBytes> thrown_away;
  for (size_t i = 0; i < kLingerReads; ++i) {
    const IoResult result = transport_.Read(thrown_away);
    if (result.state == IoState::kBlocked) return;
    // The client's end, which may have come before, is not reported again: it is read.
    if (result.state != IoState::kDone && result.state != IoState::kDrained) return Close();
  }
  Close();  // it does not listen
}

void GrpcConnection::Close() {
  state_ = State::kEnding;
  SetDeadline(kNoDeadline);
  transport_.Close();
  session_.reset();
  out_.Clear();
  flushing_.clear();
  // From the end: each that can go is replaced by the last one.
  for (size_t i = streams_.size(); i-- > 0;) {
    GrpcStream& stream = *streams_[i];
    stream.in_output = false;
    if (stream.is_open()) {
      CloseStream(stream, /*cut=*/true);
    } else {
      Recycle(stream);
    }
  }
  while (TakeRunnable() != nullptr) {
  }
  Recycle();
}

// ---- Calls --------------------------------------------------------------------------------------

bool GrpcConnection::MayBegin() {
  if (!may_begin_ || has_calls() || !(has_turn_ || server_.MayBegin())) return false;
  may_begin_ = has_turn_ = false;
  UseTurn();
  return true;
}

void GrpcConnection::AwaitTurn(GrpcStream& stream) {
  stream.execution = GrpcStream::Execution::kQueued;
  server_.Leave(stream.waiting(), Backlog::Kind::kLater, stream.arrival());
}

bool GrpcConnection::ForgetTurn(GrpcStream& stream) {
  if (stream.execution != GrpcStream::Execution::kQueued || !server_.Forget(stream.waiting()))
    return false;
  stream.execution = GrpcStream::Execution::kNone;
  return true;
}

void GrpcConnection::AddRunnable(GrpcStream& stream) {
  stream.execution = GrpcStream::Execution::kRunnable;
  stream.next = nullptr;
  (runnable_head_ == nullptr ? runnable_head_ : runnable_tail_->next) = &stream;
  runnable_tail_ = &stream;
}

// The next runnable call whose client has not gone.
GrpcStream* GrpcConnection::TakeRunnable() {
  while (GrpcStream* const stream = runnable_head_) {
    runnable_head_ = stream->next;
    if (runnable_head_ == nullptr) runnable_tail_ = nullptr;
    stream->execution = GrpcStream::Execution::kRunning;
    if (stream->is_open()) return stream;
    ReleaseTurn(*stream);
    stream->execution = GrpcStream::Execution::kNone;
    Recycle(*stream);
  }
  return nullptr;
}

void GrpcConnection::EndCalls() {
  GrpcStream* stream = nullptr;
  {
    MutexLock lock(ended_mutex_);
    stream = std::exchange(ended_, nullptr);
  }
  GrpcStream* oldest = nullptr;
  while (stream != nullptr) {
    GrpcStream* const next = std::exchange(stream->next, oldest);
    oldest = std::exchange(stream, next);
  }
  while (oldest != nullptr) {
    GrpcStream* const ended = std::exchange(oldest, oldest->next);
    const bool has_turn = std::exchange(ended->execution, GrpcStream::Execution::kNone) ==
                          GrpcStream::Execution::kQueued;
    if (ended->is_open()) Tell(*ended, [&] { has_turn ? ended->OnTurn() : ended->OnCallEnded(); });
    // Where it is not to be looked up.
    if (ended->execution != GrpcStream::Execution::kRunnable) ReleaseTurn(*ended);
    if (!ended->is_open()) Recycle(*ended);
  }
}

void GrpcConnection::CloseStream(GrpcStream& stream, bool cut) {
  stream.http = GrpcStream::Http::kClosed;
  ForgetTurn(stream);
  stream.OnClosed(cut);
  Recycle(stream);
}

// Returns the stream to the server when it is closed and no longer in use. Returns the connection
// when its last stream has gone and it is ending.
void GrpcConnection::Recycle(GrpcStream& stream) {
  if (stream.is_open() || stream.execution != GrpcStream::Execution::kNone || stream.in_output)
    return;
  streams_.back()->index = stream.index;
  streams_[stream.index] = streams_.back();
  streams_.pop_back();
  stream.End();
  server_.ReturnStream(stream);
  if (!streams_.empty()) return;
  idle_since_ = Now();
  NoteDeadline(idle_since_ + server_.parts().config->idle_timeout);
  Recycle();
}

void GrpcConnection::Recycle() {
  if (state_ != State::kEnding || !streams_.empty()) return;
  state_ = State::kClosed;
  EndConnection();
}

// ---- Time ---------------------------------------------------------------------------------------

void GrpcConnection::HandleTick() {
  if (state_ == State::kOpen && server_.draining() && !draining_) BeginDrain();
  const TimePoint now = Now();
  if (state_ != State::kClosed && IsLate(now)) CheckTime(now);
}

// Ends what is late, and notes what comes next.
void GrpcConnection::CheckTime(TimePoint now) {
  const ServerConfig& config = *server_.parts().config;
  SetDeadline(kNoDeadline);
  if (state_ == State::kLingering) {
    if (now >= linger_until_) return Close();
    return NoteDeadline(linger_until_);
  }
  const bool is_late =
      (!has_settings_ && now >= opened_at_ + config.header_timeout) || IsOutOfPatience(now);
  if (is_late) {
    server_.parts().counters->CountBadRequest(BadRequestReason::kTimeout);
    return Close();
  }
  if (!has_settings_) NoteDeadline(opened_at_ + config.header_timeout);
  if (is_blocked_) NoteDeadline(patience_until_);
  for (size_t i = streams_.size(); i-- > 0;) {
    GrpcStream& stream = *streams_[i];
    if (!stream.is_open()) continue;
    Tell(stream, [&] { stream.OnTime(now); });
  }
  if (streams_.empty() && now >= idle_since_ + config.idle_timeout) return GoAway();
  if (streams_.empty()) NoteDeadline(idle_since_ + config.idle_timeout);
  if (pinged_at_ != TimePoint{} && pinged_at_ > read_at_ && now >= pinged_at_ + kKeepaliveTimeout)
    return Close();
  if (now >= read_at_ + kKeepaliveTime && pinged_at_ <= read_at_) {
    Check(nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr));
    pinged_at_ = now;
  }
  NoteDeadline(pinged_at_ > read_at_ ? pinged_at_ + kKeepaliveTimeout : read_at_ + kKeepaliveTime);
}

void GrpcConnection::BeginDrain() {
  draining_ = true;
  for (size_t i = streams_.size(); i-- > 0;) {
    GrpcStream& stream = *streams_[i];
    if (!stream.is_open()) continue;
    Tell(stream, [&] { stream.OnDrain(); });
  }
  GoAway();
}

// The calls that have come are answered, no other is taken, and then the connection ends.
void GrpcConnection::GoAway() {
  Check(nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session_.get()),
                              NGHTTP2_NO_ERROR, nullptr, 0));
}

}  // namespace hps::server
