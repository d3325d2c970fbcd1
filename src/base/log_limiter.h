// How many lines one place in the code may log: a burst, then one a second.
//
// Something that fails for every request would otherwise fill the disk with the same sentence, and
// hide the others.
//
// Not thread-safe: the log has its lock. Its memory is bounded by the places in the code that log.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace hps {

class LogLimiter {
 public:
  static constexpr uint32_t kBurstLines = 20;
  static constexpr Duration kLineEvery = std::chrono::seconds(1);

  // Whether the place `file`:`line` may log now; then how many of its lines have been left out
  // since its last one. `file` lives as long as the process (__FILE__).
  std::optional<uint64_t> Admit(const char* file, int line, TimePoint now);

 private:
  struct Site {
    uint32_t lines_left = kBurstLines;
    TimePoint next_line{};  // when one more is allowed
    uint64_t left_out = 0;
  };

  std::map<std::pair<const char*, int>, Site> sites_;
};

}  // namespace hps
