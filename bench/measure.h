// Helpers to measure with: a stopwatch, order statistics, threads that start together.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>

namespace hps::bench {

class Stopwatch {
 public:
  Stopwatch() { Restart(); }
  void Restart() { start_ = std::chrono::steady_clock::now(); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double us() const { return seconds() * 1e6; }

 private:
  std::chrono::steady_clock::time_point start_;
};

// The value that a share `quantile` (0 to 1) of `values` is not above (nearest rank); reorders
// `values`. 0 for no values.
double Quantile(std::span<double> values, double quantile);
inline double Median(std::span<double> values) { return Quantile(values, 0.5); }

// Keeps the calling thread on one core, modulo the cores that the process may use. False when the
// system refuses; the measurement is then valid but noisier.
bool PinThread(size_t core);

// Runs body(0) ... body(thread_count - 1) at the same time, each on a core of its own, and returns
// the seconds from their common start to the end of the last one.
double RunOnThreads(size_t thread_count, const std::function<void(size_t)>& body);

// Keeps the compiler from removing the computation of `value`.
template <typename T>
void KeepAlive(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace hps::bench
