// Calls that came late to the engine because the server had no time to read them, and when a
// protocol is to leave others unread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/batch_queue.h"
#include "server/core/inference_engine.h"
#include "server/core/test_server_world.h"
#include "server/core/test_watched_models.h"
#include "testing/fakes/manual_executor.h"

namespace hps::server {
namespace {

using std::chrono::milliseconds;

// One thread plays all the others: see WatchedModels.
class UnreadWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.ImportAll({{"m/t", 100, 4}});
    world_.config().server.lookups = 1;
    world_.OpenStore();
    watch_ = std::make_unique<WatchedModels>(world_.store().models());
    world_.Start(*watch_, {.clock = &clock_, .with_timer = false});
  }
  void TearDown() override { world_.Stop(); }  // the watch goes before the world does

  InferenceEngine& engine() { return world_.core().engine(); }

  // A call of model "m", or of `model`, that lives as long as its keys do.
  struct Asked {
    explicit Asked(size_t key_count, std::string name = "m")
        : model(std::move(name)), keys(key_count, 1) {
      call.request.model = model;
      call.AddKeys("t", keys);
    }
    std::string model;
    std::vector<Key> keys;
    TestCall call;
  };

  // What a call with a time-out of 100 ms ends with that waited unread for so long.
  absl::StatusCode Ask(Duration socket_wait, const std::string& model = "m") {
    Asked asked(1, model);
    asked.call.request.timeout = milliseconds(100);
    asked.call.request.arrival = clock_.Now() - socket_wait;
    asked.call.request.socket_wait = socket_wait;
    return asked.call.Answer(engine()).code();
  }

  ServerWorld world_;
  ManualClock clock_;
  std::unique_ptr<WatchedModels> watch_;
};

// ... before anything of it is looked at.
TEST_F(UnreadWaitTest, WhatWaitedForMoreThanHalfOfItsTimeIsRefused) {
  EXPECT_EQ(Ask(milliseconds(50)), absl::StatusCode::kOk);
  EXPECT_EQ(watch_->look_count(), 1u);
  EXPECT_EQ(Ask(milliseconds(51)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Ask(milliseconds(99)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Ask(milliseconds(100)), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Ask(milliseconds(100), "unknown"), absl::StatusCode::kNotFound);
  EXPECT_EQ(watch_->look_count(), 1u);
  const ServerStatistics statistics = world_.core().Snapshot();
  EXPECT_THAT(statistics.refused, ::testing::Contains(::testing::Pair("capacity", 2u)));
  EXPECT_THAT(statistics.deadlines_exceeded, ::testing::Contains(::testing::Pair("queue", 1u)));
  EXPECT_EQ(engine().admission().calls_in_flight(), 0u);
}

TEST_F(UnreadWaitTest, ThereIsRoomUntilEnoughWaitsForTheNextLookUps) {
  EXPECT_TRUE(engine().HasRoom());
  Asked running(BatchQueue::kRoomKeysPerSlot);
  Asked large(BatchQueue::kRoomKeysPerSlot - 1);
  Asked small(1);
  watch_->set_hook([&](WatchedModels::Look& look) {
    if (look.number != 1) return;
    EXPECT_TRUE(engine().HasRoom());
    ASSERT_TRUE(large.call.Start(engine()).ok());
    EXPECT_TRUE(engine().HasRoom());
    ASSERT_TRUE(small.call.Start(engine()).ok());
    EXPECT_FALSE(engine().HasRoom());
    engine().Cancel(small.call);
    EXPECT_TRUE(engine().HasRoom());
  });
  EXPECT_TRUE(running.call.Answer(engine()).ok());
  EXPECT_TRUE(large.call.is_done());
  EXPECT_TRUE(engine().HasRoom());
}

}  // namespace
}  // namespace hps::server
