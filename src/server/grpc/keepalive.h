// Finds out whether a silent client is still there: a client that has sent nothing for kTime is
// pinged, and its connection ends if it sends nothing for another kTimeout.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace hps::server {

class Keepalive {
 public:
  static constexpr Duration kTime = std::chrono::seconds(120);
  static constexpr Duration kTimeout = std::chrono::seconds(20);

  enum class Action : uint8_t { kNone, kPing, kClose };

  // The client has sent something, or the connection has been opened.
  void OnRead(TimePoint now) { read_at_ = now; }
  TimePoint read_at() const { return read_at_; }

  // What to do now. After kPing, the client counts as pinged.
  Action Check(TimePoint now) {
    if (now < deadline()) return Action::kNone;
    if (is_pinged()) return Action::kClose;
    pinged_at_ = now;
    return Action::kPing;
  }
  // When to call Check.
  TimePoint deadline() const { return is_pinged() ? pinged_at_ + kTimeout : read_at_ + kTime; }

 private:
  bool is_pinged() const { return pinged_at_ > read_at_; }

  TimePoint read_at_{};
  TimePoint pinged_at_{};
};

}  // namespace hps::server
