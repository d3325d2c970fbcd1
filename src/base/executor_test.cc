#include "base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "testing/fakes/manual_executor.h"

namespace hps {
namespace {

TEST(WorkerPoolTest, RefusesZero) {
  EXPECT_EQ(WorkerPool::Create({.name = "t", .thread_count = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WorkerPool::Create({.name = "t", .queue_max = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(WorkerPoolTest, RunsEveryTaskAndOpensTheLatch) {
  auto pool = WorkerPool::Create({.name = "t", .thread_count = 2, .queue_max = 100});
  ASSERT_TRUE(pool.ok());
  std::atomic<int> runs = 0;
  Latch latch(100);
  std::vector<FunctionTask> tasks(100, FunctionTask([&] {
                                    ++runs;
                                    latch.CountDown();
                                  }));
  for (auto& task : tasks) ASSERT_TRUE((*pool)->Post(&task).ok());
  EXPECT_TRUE((*pool)->Await(latch, kNoDeadline));
  EXPECT_EQ(runs, 100);
}

TEST(WorkerPoolTest, RefusesWhenTheQueueIsFullAndRunsTheQueueOnDestruction) {
  std::atomic<int> runs = 0;
  Latch started(1), release(1);
  FunctionTask blocker([&] {
    started.CountDown();
    release.WaitUntil(kNoDeadline);
  });
  FunctionTask first([&] { ++runs; }), second([&] { ++runs; });
  {
    auto pool = WorkerPool::Create({.name = "t", .thread_count = 1, .queue_max = 1});
    ASSERT_TRUE(pool.ok());
    ASSERT_TRUE((*pool)->Post(&blocker).ok());
    started.WaitUntil(kNoDeadline);
    EXPECT_TRUE((*pool)->Post(&first).ok());
    EXPECT_EQ((*pool)->Post(&second).code(), absl::StatusCode::kResourceExhausted);
    release.CountDown();
  }
  EXPECT_EQ(runs, 1);
}

TEST(LatchTest, WaitEndsAtTheDeadline) {
  Latch latch(1);
  EXPECT_FALSE(latch.WaitUntil(RealClock().Now()));
  latch.CountDown();
  EXPECT_TRUE(latch.WaitUntil(RealClock().Now()));
}

TEST(LatchTest, AnInterruptEndsTheWaitButNotTheCount) {
  Latch latch(1);
  std::thread interrupter([&] { latch.Interrupt(); });
  EXPECT_FALSE(latch.WaitUntil(kNoDeadline));
  interrupter.join();
  EXPECT_FALSE(latch.WaitUntil(kNoDeadline)) << "until it is reset";
  latch.CountDown();
  EXPECT_TRUE(latch.WaitUntil(kNoDeadline)) << "open is open";
  latch.Reset(1);
  EXPECT_FALSE(latch.IsInterrupted());
  latch.CountDown();
}

TEST(ManualExecutorTest, AwaitRunsTasksAndHeldTasksComeTooLate) {
  ManualExecutor executor;
  Latch latch(2);
  FunctionTask first([&] { latch.CountDown(); }), second([&] { latch.CountDown(); });
  ASSERT_TRUE(executor.Post(&first).ok());
  ASSERT_TRUE(executor.Post(&second).ok());
  executor.Hold(true);
  const Deadline deadline = DeadlineAfter(executor.clock(), std::chrono::seconds(1));
  EXPECT_FALSE(executor.Await(latch, deadline));
  EXPECT_EQ(executor.clock().Now(), deadline);
  executor.Hold(false);
  EXPECT_TRUE(executor.Await(latch, kNoDeadline));
}

TEST(ClockTest, LongTimeoutIsNoDeadline) {
  EXPECT_EQ(DeadlineAfter(RealClock(), Duration::max()), kNoDeadline);
}

}  // namespace
}  // namespace hps
