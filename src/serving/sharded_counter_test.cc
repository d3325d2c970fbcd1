#include "serving/sharded_counter.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hps {
namespace {

TEST(ShardedCounterTest, SumsWhatThreadsAdd) {
  ShardedCounter counter;
  EXPECT_EQ(counter.Sum(), 0u);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&counter, t] {
      for (size_t i = 0; i < 1000; ++i) counter.Add(t * 64 + i % 2, 3);  // two shards for all
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Sum(), 12'000u);
}

}  // namespace
}  // namespace hps
