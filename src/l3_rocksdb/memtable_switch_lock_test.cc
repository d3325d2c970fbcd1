#include "l3_rocksdb/memtable_switch_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hps {
namespace {

TEST(MemtableSwitchLockTest, FreesOnlyWhenNothingSwitches) {
  constexpr int kRounds = 2000;
  MemtableSwitchLock switch_lock;
  std::atomic<int> switching{0};
  std::atomic<bool> freeing{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const MemtableSwitchLock::SharedGuard held(switch_lock);
        ++switching;
        EXPECT_FALSE(freeing);
        --switching;
      }
    });
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const MemtableSwitchLock::ExclusiveGuard held(switch_lock);
        EXPECT_FALSE(freeing.exchange(true));
        EXPECT_EQ(switching, 0);
        freeing = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MemtableSwitchLockTest, ManySwitchAtATime) {
  MemtableSwitchLock switch_lock;
  const MemtableSwitchLock::SharedGuard one(switch_lock);
  const MemtableSwitchLock::SharedGuard another(switch_lock);
}

}  // namespace
}  // namespace hps
