#include "update/group_sync.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/executor.h"
#include "testing/await.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

TEST(GroupSyncTest, CallersThatWaitShareOneSync) {
  OneTableStore store(TableSpec{.name = "m/t", .dim = 2});
  GroupSync group(store);
  Latch begun(1);
  Latch released(1);
  store.on_sync = [&] {
    if (store.syncs == 1) {
      begun.CountDown();
      EXPECT_TRUE(AwaitLatch(released));
    }
    return absl::OkStatus();
  };
  std::thread first([&] { EXPECT_TRUE(group.Sync().ok()); });
  ASSERT_TRUE(AwaitLatch(begun));
  std::vector<std::thread> others;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 8; ++i) {
    others.emplace_back([&] {
      EXPECT_TRUE(group.Sync().ok());
      ++ended;
    });
  }
  EXPECT_EQ(ended, 0) << "the running sync may have begun before their writes";
  released.CountDown();
  first.join();
  for (std::thread& thread : others) thread.join();
  EXPECT_GE(store.syncs, 2);
  EXPECT_LE(store.syncs, 9);
}

TEST(GroupSyncTest, TellsOfAFailureAndSyncsAgain) {
  OneTableStore store(TableSpec{.name = "m/t", .dim = 2});
  GroupSync group(store);
  store.on_sync = [&] { return absl::ResourceExhaustedError("full"); };
  EXPECT_EQ(group.Sync().code(), absl::StatusCode::kResourceExhausted);
  store.on_sync = nullptr;
  EXPECT_TRUE(group.Sync().ok());
  EXPECT_EQ(store.syncs, 2);
}

}  // namespace
}  // namespace hps
