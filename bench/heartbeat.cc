#include "bench/heartbeat.h"

#include <utility>

namespace hps::bench {

Heartbeat::Heartbeat(std::chrono::nanoseconds period, std::function<void()> beat)
    : thread_([this, period, beat = std::move(beat)] {
        while (!ended_.try_acquire_for(period)) beat();
      }) {}

Heartbeat::~Heartbeat() {
  ended_.release();
  thread_.join();
}

}  // namespace hps::bench
