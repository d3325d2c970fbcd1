// Limits the bytes and pings that a client sends while the server answers nothing on its
// connection.
//
// Frames with header fields or data are useful; the bytes of all other frames count. Data of a call
// that the server ended early may arrive until the client learns of the end, so it is allowed up to
// a bound.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/clock.h"
#include "server/grpc/ping_limit.h"

namespace hps::server {

class FloodLimit {
 public:
  // Unanswered useless bytes: 28,000 of the smallest frames.
  static constexpr size_t kIdleBytesMax = size_t{256} << 10;

  // Bytes were received. OnUseful() takes the useful ones back.
  void OnReceived(size_t bytes) { idle_bytes_ += bytes; }
  void OnUseful(size_t bytes) { idle_bytes_ -= std::min(idle_bytes_, bytes); }
  // The server has sent header fields or data.
  void OnAnswered() {
    idle_bytes_ = 0;
    pings_.Reset();
  }
  // A call was ended early: `bytes` more of it may arrive. At most `bytes_max` are allowed in all.
  void AllowLate(size_t bytes, size_t bytes_max) {
    late_bytes_max_ = std::min(late_bytes_max_ + bytes, bytes_max);
  }

  // Whether the client has sent too much. Bytes beyond the limit use up what AllowLate allowed.
  bool IsExceeded() {
    if (idle_bytes_ <= kIdleBytesMax) return false;
    const size_t late_bytes = std::min(idle_bytes_ - kIdleBytesMax, late_bytes_max_);
    idle_bytes_ -= late_bytes;
    late_bytes_max_ -= late_bytes;
    return idle_bytes_ > kIdleBytesMax;
  }
  // Whether the client may ping now.
  bool AdmitPing(TimePoint now) { return pings_.Admit(now); }

 private:
  PingLimit pings_;
  size_t idle_bytes_ = 0;
  size_t late_bytes_max_ = 0;
};

}  // namespace hps::server
