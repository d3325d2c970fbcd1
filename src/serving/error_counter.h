// Failed or timed-out operations on a level, by the code of their status.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "hps/statistics.h"

namespace hps {

class ErrorCounter {
 public:
  void Add(absl::StatusCode code) {
    const auto index = static_cast<size_t>(code);
    const size_t known = index < kStatusCodeCount ? index : size_t{2};  // UNKNOWN
    counts_[known].fetch_add(1, std::memory_order_relaxed);
  }

  // Adds them to `sum`; returns how many there are.
  uint64_t AddTo(ErrorCounts* sum) const {
    uint64_t total = 0;
    for (size_t i = 0; i < kStatusCodeCount; ++i) {
      const uint64_t count = counts_[i].load(std::memory_order_relaxed);
      (*sum)[i] += count;
      total += count;
    }
    return total;
  }

 private:
  std::array<std::atomic<uint64_t>, kStatusCodeCount> counts_{};
};

}  // namespace hps
