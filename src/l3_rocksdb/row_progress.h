// Counts the rows that a scan of tables has visited, and reports progress to the caller.
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
  // `total` may be an estimate. `function` must outlive this object.
  RowProgress(const ProgressFunction& function, std::string step, uint64_t total)
      : reporter_(function, total), step_(std::move(step)), total_(total) {}

  void AddRow() {
    if (done_++ % kRowsPerClockRead == 0) reporter_.Report(step_, std::min(done_, total_));
  }

 private:
  // Reading the clock costs about as much as one row.
  static constexpr uint64_t kRowsPerClockRead = 4096;

  ProgressReporter reporter_;
  const std::string step_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

}  // namespace hps
