#include "query/fetch/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "testing/fakes/manual_executor.h"

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
  CrewPool crews({.executor = &executor, .helpers_max = 2});
  const CrewLease crew = crews.Acquire();
  for (size_t piece_count : {0, 1, 5}) {
    crew->Call(2);
    CountingWork work(piece_count);
    crew->Open(work);
    crew->Announce(piece_count);
    while (crew->DoOne()) {
    }
    crew->Close();
    work.ExpectAllDoneOnce();
  }
  EXPECT_EQ(executor.queued_count(), 2) << "helpers on their way are not called again";
  executor.RunAll();
}

TEST(CrewTest, AHelperTakesPiecesOfTheCallThatItMeets) {
  ManualExecutor executor;
  CrewPool crews({.executor = &executor, .helpers_max = 3});
  const CrewLease crew = crews.Acquire();
  crew->Call(9);
  EXPECT_EQ(executor.queued_count(), 2);
  executor.RunOne();  // too early: there are no pieces
  EXPECT_EQ(executor.queued_count(), 2) << "it has woken another one";
  CountingWork work(4);
  crew->Open(work);
  crew->Announce(4);
  EXPECT_TRUE(crew->DoOne());
  executor.RunOne();
  EXPECT_FALSE(crew->DoOne()) << "the helper has done the other three";
  crew->Close();
  work.ExpectAllDoneOnce();
  executor.RunAll();  // too late
}

TEST(CrewTest, AHelperMayComeAfterTheCrewWasReturned) {
  ManualExecutor executor;
  CrewPool crews({.executor = &executor, .helpers_max = 2});
  CrewLease crew = crews.Acquire();
  crew->Call(2);
  crew->Close();
  crew.reset();
  executor.RunOne();  // nobody has the crew
  crew = crews.Acquire();
  CountingWork work(3);
  crew->Open(work);
  crew->Announce(3);
  executor.RunOne();  // called by the one before, helps the next one
  EXPECT_FALSE(crew->DoOne());
  crew->Close();
  work.ExpectAllDoneOnce();
}

TEST(CrewTest, CrewsThatAreLentAtATimeDiffer) {
  ManualExecutor executor;
  CrewPool crews({.executor = &executor, .helpers_max = 1});
  CrewLease first = crews.Acquire();
  const CrewLease second = crews.Acquire();
  Crew* const returned = first.get();
  ASSERT_NE(returned, second.get());
  first.reset();
  EXPECT_EQ(crews.Acquire().get(), returned) << "no third one is made";
}

TEST(CrewTest, AFullQueueMeansNoHelp) {
  ManualExecutor executor(0, 1);
  CrewPool crews({.executor = &executor, .helpers_max = 2});
  const CrewLease crew = crews.Acquire();
  for (int call = 0; call < 2; ++call) {
    crew->Call(2);
    EXPECT_EQ(executor.queued_count(), 1);
    executor.RunAll();
  }
  crew->Close();
}

TEST(CrewTest, EveryPieceIsDoneOnceWhoeverTakesIt) {
  for (const Duration spin : {Duration::zero(), Duration(std::chrono::microseconds(100))}) {
    auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 3});
    CrewPool crews({.executor = pool.get(), .helpers_max = 3, .spin = spin});
    CrewLease crew = crews.Acquire();
    for (size_t call = 0; call < 2000; ++call) {
      if (call % 7 == 0) {  // some of the last one's helpers come to this one
        crew.reset();
        crew = crews.Acquire();
      }
      const size_t piece_count = call % 20;
      crew->Call(call % 4);
      CountingWork work(piece_count);
      crew->Open(work);
      crew->Announce(piece_count);
      if (call % 5 == 0) crew->Call(3);
      while (crew->DoOne()) {
      }
      crew->Close();
      work.ExpectAllDoneOnce();
    }
    pool.reset();  // its last task ends before the crews do
  }
}

// A helper that is in the middle of a piece is waited for, however long that takes.
TEST(CrewTest, CloseWaitsForAPieceThatIsBeingDone) {
  auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 1});
  CrewPool crews({.executor = pool.get(), .helpers_max = 1});
  const CrewLease crew = crews.Acquire();
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
  crew->Open(work);
  crew->Announce(1);
  crew->Call(1);
  ASSERT_TRUE(entered.WaitUntil(kNoDeadline));
  EXPECT_FALSE(crew->DoOne());
  crew->Close();
  EXPECT_TRUE(done);
  work.ExpectAllDoneOnce();
  go_on.CountDown();
  pool.reset();
}

}  // namespace
}  // namespace hps
