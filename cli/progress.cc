#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/output.h"

namespace hps::cli {
namespace {

constexpr auto kBarPeriod = std::chrono::milliseconds(100);
constexpr auto kLinePeriod = std::chrono::seconds(10);
constexpr size_t kBarWidth = 30;
constexpr const char* kWipeLine = "\r\x1b[K";

std::string Bar(double share) {
  const size_t filled = static_cast<size_t>(share * static_cast<double>(kBarWidth));
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "]";
}

// How much is done, with a separator behind it; nothing where neither that nor the end is known.
std::string Amount(const Progress& progress, bool with_bar) {
  if (progress.total == 0) {
    return progress.done == 0 ? "" : ReadableCount(static_cast<double>(progress.done)) + ", ";
  }
  const double share =
      std::min(1.0, static_cast<double>(progress.done) / static_cast<double>(progress.total));
  return (with_bar ? Bar(share) + " " : "") + Fixed(share * 100, 0) + " %, ";
}

}  // namespace

ProgressMeter::ProgressMeter(std::string title)
    : title_(std::move(title)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_(start_ + (is_terminal_ ? Clock::duration(kBarPeriod) : Clock::duration(kLinePeriod))) {}

void ProgressMeter::Show(const Progress& progress) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? Clock::duration(kBarPeriod) : Clock::duration(kLinePeriod));
  const std::string seconds = Fixed(std::chrono::duration<double>(now - start_).count(), 0) + " s";
  const std::string line =
      absl::StrCat(title_, ": ", progress.step, " ", Amount(progress, is_terminal_), seconds);
  if (is_terminal_) {
    std::fprintf(stderr, "%s%s", kWipeLine, line.c_str());
    bar_shown_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void ProgressMeter::Clear() {
  if (bar_shown_) std::fputs(kWipeLine, stderr);
  bar_shown_ = false;
}

}  // namespace hps::cli
