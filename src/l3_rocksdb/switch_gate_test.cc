#include "l3_rocksdb/switch_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hps {
namespace {

TEST(SwitchGateTest, FreesOnlyWhenNothingSwitches) {
  constexpr int kRounds = 2000;
  SwitchGate gate;
  std::atomic<int> switching{0};
  std::atomic<bool> freeing{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const SwitchGate::Switching held(gate);
        ++switching;
        EXPECT_FALSE(freeing);
        --switching;
      }
    });
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const SwitchGate::Freeing held(gate);
        EXPECT_FALSE(freeing.exchange(true));
        EXPECT_EQ(switching, 0);
        freeing = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SwitchGateTest, ManySwitchAtATime) {
  SwitchGate gate;
  const SwitchGate::Switching one(gate);
  const SwitchGate::Switching another(gate);
}

}  // namespace
}  // namespace hps
