#include "bench/heartbeat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

namespace hps::bench {
namespace {

TEST(HeartbeatTest, BeatsUntilItEnds) {
  std::counting_semaphore<> beats(0);
  std::atomic<bool> ended = false;
  {
    Heartbeat heartbeat(std::chrono::milliseconds(1), [&] {
      EXPECT_FALSE(ended.load());
      beats.release();
    });
    for (int i = 0; i < 3; ++i) beats.acquire();
  }
  ended = true;
}

TEST(HeartbeatTest, EndsAtOnceWithoutABeat) {
  const Heartbeat heartbeat(std::chrono::hours(1), [] { ADD_FAILURE(); });
}

}  // namespace
}  // namespace hps::bench
