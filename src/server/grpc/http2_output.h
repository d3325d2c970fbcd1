// The output of one HTTP/2 connection: frames that the socket has not taken yet, the streams whose
// memory they refer to, and how long the client may leave them unread.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "server/grpc/http2_stream.h"
#include "server/grpc/output_queue.h"
#include "server/net/send_patience.h"
#include "server/net/transport.h"

namespace hps::server {

class Http2Output {
 public:
  // The session adds nothing while this much or more is unsent.
  static constexpr size_t kBytesMax = size_t{256} << 10;

  bool is_empty() const { return queue_.empty(); }
  bool is_full() const { return queue_.bytes() >= kBytesMax; }

  // Copies whole frames.
  void AddFrames(std::span<const std::byte> frames) { queue_.AddCopy(frames); }
  // Adds a DATA frame: copies `head`, and views the next `bytes` of the stream's response.
  void AddData(Http2Stream& stream, std::span<const std::byte> head, size_t bytes);

  // Writes all of it or what the transport takes: kDone (all), kBlocked or kFailed.
  IoState Write(Transport& transport, TimePoint now, Duration write_timeout);

  // Calls `act` for each stream whose views have all been sent. `act` adds no output.
  template <typename Act>
  void TakeFlushed(const Act& act) {
    size_t kept = 0;
    for (size_t i = 0; i < viewed_.size(); ++i) {
      Http2Stream* const stream = viewed_[i];
      if (stream->output_end > queue_.sent()) {
        viewed_[kept++] = stream;
        continue;
      }
      stream->output_end = 0;
      act(*stream);
    }
    viewed_.resize(kept);
  }

  // When to call IsLate; kNoDeadline if the client does not block the output.
  TimePoint deadline() const { return deadline_; }
  // Whether the client has blocked the output for too long. `taken_bytes`: Transport's.
  bool IsLate(TimePoint now, uint64_t taken_bytes);

  // Drops everything.
  void Clear();

 private:
  OutputQueue queue_;
  std::vector<Http2Stream*> viewed_;
  SendPatience patience_;
  TimePoint deadline_ = kNoDeadline;
  uint64_t blocked_end_ = 0;  // end of the output that was unsent when the block began
};

}  // namespace hps::server
