// Limits the log lines of one place in the code: a burst, then one per second.
//
// A failure that occurs for every request would otherwise fill the disk with one sentence and hide
// the other lines.
//
// Not thread-safe: the log's lock protects it. Its memory is bounded by the number of logging
// places in the code.
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

  // Whether the place `file`:`line` may log now; if so, also how many of its lines were suppressed
  // since its last one. `file` must stay valid until the process ends (__FILE__).
  std::optional<uint64_t> Admit(const char* file, int line, TimePoint now);

 private:
  struct Site {
    uint32_t lines_left = kBurstLines;
    TimePoint next_line{};  // when the next line is allowed
    uint64_t left_out = 0;
  };

  std::map<std::pair<const char*, int>, Site> sites_;
};

}  // namespace hps
