// The system's clock, which may be set: for times that other programs read, not for waits, which
// take base/clock.h. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace hps {

inline int64_t UnixMicroseconds() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count();
}

inline int64_t UnixMilliseconds() { return UnixMicroseconds() / 1000; }

}  // namespace hps
