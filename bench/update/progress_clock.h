// The rate of a job between a tenth of it and its end, so that jobs are compared without their
// beginnings: connections, the first fetches, empty buffers.
//
// Not thread-safe.
#pragma once

#include <cstdint>

#include "bench/measure.h"

namespace hps::bench {

class ProgressClock {
 public:
  explicit ProgressClock(uint64_t total) : total_(total) {}

  // `done` of the total are done now; never less than before.
  void Note(uint64_t done) {
    if (!has_begun_) {
      if (done < total_ / 10) return;
      has_begun_ = true;
      begin_ = done;
      stopwatch_.Restart();
    } else if (done >= total_ && seconds_ == 0) {
      seconds_ = stopwatch_.seconds();
    }
  }
  // Parts of the total per second; 0 if it did not end, or ended with its first step.
  double share_per_second() const {
    if (seconds_ <= 0) return 0;
    return static_cast<double>(total_ - begin_) / static_cast<double>(total_) / seconds_;
  }

 private:
  const uint64_t total_;
  bool has_begun_ = false;
  uint64_t begin_ = 0;  // done when the clock began
  Stopwatch stopwatch_;
  double seconds_ = 0;
};

}  // namespace hps::bench
