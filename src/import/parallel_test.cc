#include "import/parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

namespace hps {
namespace {

std::unique_ptr<WorkerPool> Pool(size_t threads, size_t queue_max = 64) {
  auto pool = WorkerPool::Create({.name = "test", .thread_count = threads, .queue_max = queue_max});
  HPS_CHECK(pool.ok());
  return *std::move(pool);
}

TEST(RunStepsTest, RunsEveryStepOnce) {
  const auto pool = Pool(3);
  std::array<std::atomic<int>, 1000> runs{};
  const auto step = [&](size_t i, const std::atomic<bool>&) {
    runs.at(i).fetch_add(1);
    return absl::OkStatus();
  };
  ASSERT_EQ(RunSteps(*pool, {.step_count = 1000, .lane_count = 3, .step = step}), absl::OkStatus());
  for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
  EXPECT_EQ(RunSteps(*pool, {.step_count = 0, .lane_count = 3, .step = step}), absl::OkStatus());
}

TEST(RunStepsTest, RunsAtMostSoManyAtATime) {
  const auto pool = Pool(4);
  std::atomic<int> running = 0;
  std::atomic<int> running_max = 0;
  const auto step = [&](size_t, const std::atomic<bool>&) {
    const int now = running.fetch_add(1) + 1;
    int seen = running_max.load();
    while (now > seen && !running_max.compare_exchange_weak(seen, now)) {
    }
    running.fetch_sub(1);
    return absl::OkStatus();
  };
  ASSERT_EQ(RunSteps(*pool, {.step_count = 500, .lane_count = 2, .step = step}), absl::OkStatus());
  EXPECT_LE(running_max.load(), 2);
}

TEST(RunStepsTest, AStepWithoutMemoryIsAnError) {
  const auto pool = Pool(2);
  const auto step = [&](size_t i, const std::atomic<bool>&) {
    if (i == 3) throw std::bad_alloc();
    return absl::OkStatus();
  };
  EXPECT_EQ(RunSteps(*pool, {.step_count = 10, .lane_count = 2, .step = step}).code(),
            absl::StatusCode::kResourceExhausted);
}

// Catches: lanes that still use the stack after it has been released.
TEST(RunStepsTest, AnExceptionOfTheTickIsRethrownWhenNoStepRuns) {
  const auto pool = Pool(2);
  std::atomic<size_t> begun = 0;
  std::atomic<size_t> ended = 0;
  const auto step = [&](size_t, const std::atomic<bool>& failed) {
    begun.fetch_add(1);
    while (!failed.load()) std::this_thread::yield();
    ended.fetch_add(1);
    return absl::OkStatus();
  };
  const auto tick = [&] {
    while (begun.load() == 0) std::this_thread::yield();
    throw std::runtime_error("thrown by tick");
  };
  EXPECT_THROW(
      (void)RunSteps(*pool, {.step_count = 1000, .lane_count = 2, .step = step, .tick = tick}),
      std::runtime_error);
  EXPECT_GT(begun.load(), 0u);
  EXPECT_EQ(ended.load(), begun.load());
}

TEST(RunStepsTest, AnErrorEndsItAndIsReturned) {
  const auto pool = Pool(2);
  std::atomic<size_t> begun = 0;
  std::atomic<bool> told = false;
  const auto step = [&](size_t i, const std::atomic<bool>& failed) -> absl::Status {
    begun.fetch_add(1);
    if (i == 3) return absl::DataLossError("step 3");
    // Steps after the failing one begin only concurrently with it; they wait for `failed`.
    if (i == 4) {
      while (!failed.load()) {
      }
      told = true;
      return absl::CancelledError("late");
    }
    return absl::OkStatus();
  };
  EXPECT_EQ(RunSteps(*pool, {.step_count = 1000, .lane_count = 2, .step = step}),
            absl::DataLossError("step 3"));
  EXPECT_LE(begun.load(), 5U);
}

TEST(RunStepsTest, AFullExecutorIsAnErrorNotAHang) {
  std::atomic<bool> release = false;
  class Blocker final : public Task {
   public:
    explicit Blocker(std::atomic<bool>& release) : release_(release) {}
    void Run() override {
      while (!release_.load()) {
      }
    }

   private:
    std::atomic<bool>& release_;
  };
  Blocker running(release);
  Blocker queued(release);
  const auto pool = Pool(1, 1);  // destroyed first: runs the queued tasks
  ASSERT_TRUE(pool->Post(&running).ok());
  while (pool->queued_count() != 0) {
  }
  ASSERT_TRUE(pool->Post(&queued).ok());
  const auto step = [](size_t, const std::atomic<bool>&) { return absl::OkStatus(); };
  EXPECT_EQ(RunSteps(*pool, {.step_count = 5, .lane_count = 2, .step = step}).code(),
            absl::StatusCode::kResourceExhausted);
  release = true;
}

TEST(RunStepsTest, TicksWhileItWaits) {
  const auto pool = Pool(1);
  std::atomic<bool> ticked = false;
  const auto step = [&](size_t, const std::atomic<bool>&) {
    while (!ticked.load()) {
    }
    return absl::OkStatus();
  };
  EXPECT_EQ(RunSteps(*pool, {.step_count = 1, .step = step, .tick = [&] { ticked = true; }}),
            absl::OkStatus());
}

}  // namespace
}  // namespace hps
