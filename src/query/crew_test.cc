#include "query/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/manual_executor.h"

namespace hps {
namespace {

// Counts how often each piece is done; what it counts is not atomic, so that a piece that is done
// twice, or is not done when Close returns, is also a data race.
class CountingWork final : public Crew::Work {
 public:
  explicit CountingWork(size_t piece_count) : done_(piece_count, 0) {}
  void DoPiece(size_t piece) override {
    ++done_[piece];
    if (in_piece) in_piece();
  }
  void ExpectAllDoneOnce() const {
    for (const int done : done_) ASSERT_EQ(done, 1);
  }
  std::function<void()> in_piece;

 private:
  std::vector<int> done_;
};

TEST(CrewTest, TheCallerDoesWhatNobodyTakes) {
  ManualExecutor executor;
  Crew crew({.executor = &executor, .helpers_max = 2});
  for (size_t piece_count : {0, 1, 5}) {
    crew.Call(2);
    CountingWork work(piece_count);
    crew.Open(work, piece_count);
    while (crew.DoOne()) {
    }
    crew.Close();
    work.ExpectAllDoneOnce();
  }
  EXPECT_EQ(executor.queued_count(), 2) << "helpers on their way are not called again";
  executor.RunAll();
}

TEST(CrewTest, AHelperTakesPiecesOfTheCallThatItMeets) {
  ManualExecutor executor;
  Crew crew({.executor = &executor, .helpers_max = 3});
  crew.Call(9);
  EXPECT_EQ(executor.queued_count(), 3);
  executor.RunOne();  // too early: there are no pieces
  CountingWork work(4);
  crew.Open(work, 4);
  EXPECT_TRUE(crew.DoOne());
  executor.RunOne();
  EXPECT_FALSE(crew.DoOne()) << "the helper has done the other three";
  crew.Close();
  work.ExpectAllDoneOnce();
  executor.RunAll();  // too late
}

TEST(CrewTest, AHelperMayComeAfterTheCrewHasGone) {
  ManualExecutor executor;
  {
    Crew crew({.executor = &executor, .helpers_max = 2});
    crew.Call(2);
    crew.Close();
  }
  executor.RunAll();
}

TEST(CrewTest, AFullQueueMeansNoHelp) {
  ManualExecutor executor(0, 1);
  Crew crew({.executor = &executor, .helpers_max = 2});
  for (int call = 0; call < 2; ++call) {
    crew.Call(2);
    EXPECT_EQ(executor.queued_count(), 1);
    executor.RunAll();
  }
  crew.Close();
}

TEST(CrewTest, EveryPieceIsDoneOnceWhoeverTakesIt) {
  const auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 3});
  for (const Duration spin : {Duration::zero(), Duration(std::chrono::microseconds(100))}) {
    Crew crew({.executor = pool.get(), .helpers_max = 3, .spin = spin});
    for (size_t call = 0; call < 2000; ++call) {
      const size_t piece_count = call % 20;
      crew.Call(call % 4);
      CountingWork work(piece_count);
      crew.Open(work, piece_count);
      if (call % 5 == 0) crew.Call(3);
      while (crew.DoOne()) {
      }
      crew.Close();
      work.ExpectAllDoneOnce();
    }
  }
}

// A helper that is in the middle of a piece is waited for, however long that takes.
TEST(CrewTest, CloseWaitsForAPieceThatIsBeingDone) {
  const auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 1});
  Crew crew({.executor = pool.get(), .helpers_max = 1});
  Latch entered(1);
  Latch go_on(1);
  CountingWork work(1);
  std::atomic<bool> done = false;
  work.in_piece = [&] {
    entered.CountDown();
    // Only the time that Close takes to block; that it has blocked can't be seen from outside.
    go_on.WaitUntil(DeadlineAfter(RealClock(), std::chrono::milliseconds(2)));
    done = true;
  };
  crew.Open(work, 1);
  crew.Call(1);
  ASSERT_TRUE(entered.WaitUntil(kNoDeadline));
  EXPECT_FALSE(crew.DoOne());
  crew.Close();
  EXPECT_TRUE(done);
  work.ExpectAllDoneOnce();
  go_on.CountDown();
}

}  // namespace
}  // namespace hps
