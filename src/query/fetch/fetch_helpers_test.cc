#include "query/fetch/fetch_helpers.h"

#include <gtest/gtest.h>

#include "testing/fakes/manual_executor.h"

namespace hps {
namespace {

class CountedPieces final : public ForkJoinTeam::Work {
 public:
  void RunPiece(size_t) override { ++run_count; }

  size_t run_count = 0;
};

// Work of so many microseconds, in 10 pieces.
GatherWork WorkOf(uint64_t microseconds) { return {.pieces = 10, .bytes = microseconds * 10'000}; }

class FetchHelpersTest : public testing::Test {
 protected:
  static constexpr size_t kHelpersMax = 2;  // as many as wake at once

  ~FetchHelpersTest() override { EndCall(); }

  void EndCall() {
    helpers_.Close();
    executor_.RunAll();
  }
  // Helpers that a call of such work has woken when it ends.
  size_t CalledFor(const GatherWork& work) {
    helpers_.Publish(pieces_, work);
    helpers_.NoteCall(work);
    const size_t called = executor_.queued_count();
    EndCall();
    return called;
  }

  ManualExecutor executor_;
  ForkJoinPool pool_{{.executor = &executor_, .helpers_max = kHelpersMax}};
  CountedPieces pieces_;
  FetchHelpers helpers_{
      pool_.Acquire(),
      {.alone_max = std::chrono::microseconds(50), .helper_share = std::chrono::microseconds(30)}};
};

TEST_F(FetchHelpersTest, OneIsCalledForEachShareOfTheWork) {
  EXPECT_EQ(CalledFor(WorkOf(50)), 0u) << "left to the caller";
  EXPECT_EQ(CalledFor(WorkOf(59)), 1u);
  EXPECT_EQ(CalledFor(WorkOf(60)), 2u);
  EXPECT_EQ(CalledFor(WorkOf(1000)), kHelpersMax);
  EXPECT_EQ(CalledFor({.pieces = 2, .bytes = 10'000'000}), 1u) << "the caller takes one piece";
  EXPECT_EQ(CalledFor({.pieces = 1, .bytes = 10'000'000}), 0u);
}

TEST_F(FetchHelpersTest, WorkThatBecomesKnownLaterCallsMore) {
  helpers_.Publish(pieces_, WorkOf(59));
  EXPECT_EQ(executor_.queued_count(), 1u);
  helpers_.Publish(pieces_, WorkOf(59));
  EXPECT_EQ(executor_.queued_count(), 1u) << "no more than it is worth";
  helpers_.Publish(pieces_, WorkOf(60));
  EXPECT_EQ(executor_.queued_count(), 2u);
}

TEST_F(FetchHelpersTest, AsManyAsTheLastCallNeededAreCalledAhead) {
  helpers_.CallAhead();
  EXPECT_EQ(executor_.queued_count(), 0u);
  CalledFor(WorkOf(60));
  helpers_.CallAhead();
  EXPECT_EQ(executor_.queued_count(), 2u);
  EndCall();
  helpers_.CallAhead();
  EXPECT_EQ(executor_.queued_count(), 2u) << "the last call came to nothing";
  EndCall();
  helpers_.NoteCall({});
  helpers_.CallAhead();
  EXPECT_EQ(executor_.queued_count(), 0u) << "the last call had no pieces";
}

TEST_F(FetchHelpersTest, TheCallerRunsPiecesThatNoHelperHasTaken) {
  EXPECT_FALSE(helpers_.RunOne()) << "nothing is published";
  helpers_.Publish(pieces_, {.pieces = 2});
  EXPECT_TRUE(helpers_.RunOne());
  EXPECT_TRUE(helpers_.RunOne());
  EXPECT_FALSE(helpers_.RunOne());
  EXPECT_EQ(pieces_.run_count, 2u);
}

}  // namespace
}  // namespace hps
