// Counts the rows that a walk over tables has visited, for whoever waits for it.
//
// For one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "types/progress_reporter.h"

namespace hps {

class RowProgress {
 public:
  // `total` may be an estimate. `function` outlives this.
  RowProgress(const ProgressFunction& function, std::string step, uint64_t total)
      : reporter_(function, total), step_(std::move(step)), total_(total) {}

  void AddRow() {
    if (done_++ % kRowsPerLook == 0) reporter_.Report(step_, std::min(done_, total_));
  }

 private:
  // A look at the clock costs about as much as a row.
  static constexpr uint64_t kRowsPerLook = 4096;

  ProgressReporter reporter_;
  const std::string step_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

}  // namespace hps
