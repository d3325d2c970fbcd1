#include "base/fork_join_team.h"

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
class CountingWork final : public ForkJoinTeam::Work {
 public:
  explicit CountingWork(size_t piece_count) : done_(piece_count, 0) {}
  void RunPiece(size_t piece) override {
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

TEST(ForkJoinTeamTest, TheCallerDoesWhatNobodyTakes) {
  ManualExecutor executor;
  ForkJoinPool teams({.executor = &executor, .helpers_max = 2});
  const ForkJoinLease team = teams.Acquire();
  for (size_t piece_count : {0, 1, 5}) {
    team->Call(2);
    CountingWork work(piece_count);
    team->Open(work);
    team->Publish(piece_count);
    while (team->RunOne()) {
    }
    team->Close();
    work.ExpectAllDoneOnce();
  }
  EXPECT_EQ(executor.queued_count(), 2) << "helpers on their way are not called again";
  executor.RunAll();
}

TEST(ForkJoinTeamTest, AHelperTakesPiecesOfTheCallThatItMeets) {
  ManualExecutor executor;
  ForkJoinPool teams({.executor = &executor, .helpers_max = 3});
  const ForkJoinLease team = teams.Acquire();
  team->Call(9);
  EXPECT_EQ(executor.queued_count(), 2);
  executor.RunOne();  // too early: there are no pieces
  EXPECT_EQ(executor.queued_count(), 2) << "it has woken another one";
  CountingWork work(4);
  team->Open(work);
  team->Publish(4);
  EXPECT_TRUE(team->RunOne());
  executor.RunOne();
  EXPECT_FALSE(team->RunOne()) << "the helper has done the other three";
  team->Close();
  work.ExpectAllDoneOnce();
  executor.RunAll();  // too late
}

TEST(ForkJoinTeamTest, AHelperMayComeAfterTheCrewWasReturned) {
  ManualExecutor executor;
  ForkJoinPool teams({.executor = &executor, .helpers_max = 2});
  ForkJoinLease team = teams.Acquire();
  team->Call(2);
  team->Close();
  team.reset();
  executor.RunOne();  // no caller has leased the team
  team = teams.Acquire();
  CountingWork work(3);
  team->Open(work);
  team->Publish(3);
  executor.RunOne();  // the first lease called it, it helps the second
  EXPECT_FALSE(team->RunOne());
  team->Close();
  work.ExpectAllDoneOnce();
}

TEST(ForkJoinTeamTest, TeamsThatAreLentAtATimeDiffer) {
  ManualExecutor executor;
  ForkJoinPool teams({.executor = &executor, .helpers_max = 1});
  ForkJoinLease first = teams.Acquire();
  const ForkJoinLease second = teams.Acquire();
  ForkJoinTeam* const returned = first.get();
  ASSERT_NE(returned, second.get());
  first.reset();
  EXPECT_EQ(teams.Acquire().get(), returned) << "no third one is made";
}

TEST(ForkJoinTeamTest, AFullQueueMeansNoHelp) {
  ManualExecutor executor(0, 1);
  ForkJoinPool teams({.executor = &executor, .helpers_max = 2});
  const ForkJoinLease team = teams.Acquire();
  for (int call = 0; call < 2; ++call) {
    team->Call(2);
    EXPECT_EQ(executor.queued_count(), 1);
    executor.RunAll();
  }
  team->Close();
}

TEST(ForkJoinTeamTest, EveryPieceIsDoneOnceWhoeverTakesIt) {
  for (const Duration spin : {Duration::zero(), Duration(std::chrono::microseconds(100))}) {
    auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 3});
    ForkJoinPool teams({.executor = pool.get(), .helpers_max = 3, .spin = spin});
    ForkJoinLease team = teams.Acquire();
    for (size_t call = 0; call < 2000; ++call) {
      if (call % 7 == 0) {  // some of the last one's helpers come to this one
        team.reset();
        team = teams.Acquire();
      }
      const size_t piece_count = call % 20;
      team->Call(call % 4);
      CountingWork work(piece_count);
      team->Open(work);
      team->Publish(piece_count);
      if (call % 5 == 0) team->Call(3);
      while (team->RunOne()) {
      }
      team->Close();
      work.ExpectAllDoneOnce();
    }
    pool.reset();  // its last task ends before the teams do
  }
}

// A helper that is in the middle of a piece is waited for, however long that takes.
TEST(ForkJoinTeamTest, CloseWaitsForAPieceThatIsBeingDone) {
  auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 1});
  ForkJoinPool teams({.executor = pool.get(), .helpers_max = 1});
  const ForkJoinLease team = teams.Acquire();
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
  team->Open(work);
  team->Publish(1);
  team->Call(1);
  ASSERT_TRUE(entered.WaitUntil(kNoDeadline));
  EXPECT_FALSE(team->RunOne());
  team->Close();
  EXPECT_TRUE(done);
  work.ExpectAllDoneOnce();
  go_on.CountDown();
  pool.reset();
}

}  // namespace
}  // namespace hps
