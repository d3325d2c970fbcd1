#include "train_cpu/shared_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace hps {
namespace {

using Clock = std::chrono::steady_clock;

// Two wake-ups of a thread take about as long.
constexpr std::chrono::microseconds kLook{60};

bool HasReached(const SharedWord& word, uint32_t value) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >= 0;
}

}  // namespace

void RaiseWord(SharedWord& word, uint32_t value) {
  word.store(value, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool WaitForWord(const SharedWord& word, uint32_t value, std::chrono::nanoseconds time) {
  const Clock::time_point begin = Clock::now();
  while (!HasReached(word, value)) {
    const Clock::duration passed = Clock::now() - begin;
    if (passed >= time) return false;
    if (passed < kLook) continue;
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - value) >= 0) return true;
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(time - passed).count();
    const timespec limit{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    // Returns at once if the word is no longer as seen. Not the private kind of futex: the word is
    // another process's.
    syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  return true;
}

}  // namespace hps
