#include "server/grpc/http2_output.h"

namespace hps::server {

void Http2Output::AddData(Http2Stream& stream, std::span<const std::byte> head, size_t bytes) {
  if (!stream.is_in_output()) viewed_.push_back(&stream);
  queue_.AddCopy(head);
  stream.response.TakeUnsent(bytes, &queue_);
  stream.output_end = queue_.end();
}

// A block lasts until the client has taken all output that was unsent when the block began. Taking
// a part of it does not extend the deadline.
IoState Http2Output::Write(Transport& transport, TimePoint now, Duration write_timeout) {
  const IoState state = queue_.WriteTo(transport);
  if (queue_.sent() >= blocked_end_) deadline_ = kNoDeadline;
  if (state == IoState::kBlocked && deadline_ == kNoDeadline) {
    blocked_end_ = queue_.end();
    deadline_ = patience_.Begin(now, write_timeout, transport.taken_bytes());
  }
  return state;
}

bool Http2Output::IsLate(TimePoint now, uint64_t taken_bytes) {
  if (now < deadline_) return false;
  const std::optional<TimePoint> deadline = patience_.Extend(now, taken_bytes);
  deadline_ = deadline.value_or(now);
  return !deadline.has_value();
}

void Http2Output::Clear() {
  queue_.Clear();
  for (Http2Stream* const stream : viewed_) stream->output_end = 0;
  viewed_.clear();
  deadline_ = kNoDeadline;
}

}  // namespace hps::server
