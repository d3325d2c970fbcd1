// Whether a device of level 1 answers: the circuit breaker of its lookups, and the log of it.
//
// Lookups note how the device answered. Code that fills the device's tables asks here first,
// because each call on a device that hangs takes as long as its caller is ready to wait.
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/circuit_breaker.h"
#include "base/clock.h"

namespace hps {

class DeviceHealth {
 public:
  // `on_answer` is run, on the thread of a lookup, when a device that had failed answers again; it
  // must not block.
  explicit DeviceHealth(int device, std::function<void()> on_answer = nullptr)
      : device_(device), on_answer_(std::move(on_answer)) {}
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  int device() const { return device_; }

  // Whether a lookup may ask the device now, see CircuitBreaker.
  bool Admits(TimePoint now) { return breaker_.Admits(now); }
  // Whether the device answered the last time that it was asked.
  bool is_up() const { return !breaker_.is_open(); }

  // Each says so in the log, but only the first of several in a row.
  void NoteFailure(TimePoint now, const absl::Status& why);
  void NoteAnswer() {
    if (breaker_.is_open()) NoteAnswersAgain();
  }

 private:
  void NoteAnswersAgain();

  const int device_;
  const std::function<void()> on_answer_;
  CircuitBreaker breaker_;
  std::atomic<bool> logged_down_{false};
};

}  // namespace hps
