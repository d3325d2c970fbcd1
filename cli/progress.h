// How long work shows that it goes on: a bar on a terminal, a line every 10 s otherwise, on stderr.
//
// For one thread at a time.
#pragma once

#include <chrono>
#include <string>

#include "hps/transfer.h"

namespace hps::cli {

class ProgressMeter {
 public:
  // `title` is what is being done: "import dlrm/user".
  explicit ProgressMeter(std::string title);
  ProgressMeter(const ProgressMeter&) = delete;
  ProgressMeter& operator=(const ProgressMeter&) = delete;
  ~ProgressMeter() { Clear(); }

  // For requests; the meter must outlive them.
  ProgressFunction function() {
    return [this](const Progress& progress) { Show(progress); };
  }

  // Wipes the bar, so that the next line stands alone.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  void Show(const Progress& progress);

  const std::string title_;
  const bool is_terminal_;
  const Clock::time_point start_;
  Clock::time_point next_;  // nothing is shown before
  bool bar_shown_ = false;
};

}  // namespace hps::cli
