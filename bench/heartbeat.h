// Shows that a scenario goes on: it runs for minutes and prints nothing until its end.
#pragma once

#include <chrono>
#include <functional>
#include <semaphore>
#include <thread>

namespace hps::bench {

// Calls `beat` every `period` on a thread of its own, from one period after it was made until it is
// destroyed, which waits for a call under way. A beat is to cost nothing that a figure would show.
class Heartbeat {
 public:
  Heartbeat(std::chrono::nanoseconds period, std::function<void()> beat);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat();

 private:
  std::binary_semaphore ended_{0};
  std::thread thread_;
};

}  // namespace hps::bench
