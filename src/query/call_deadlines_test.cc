#include "query/call_deadlines.h"

#include <gtest/gtest.h>

#include "hps/lookup_cancel.h"

namespace hps {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class SetClock final : public Clock {
 public:
  TimePoint Now() const override { return now; }

  TimePoint now{seconds(1000)};
};

class CallDeadlinesTest : public testing::Test {
 protected:
  void Begin(std::optional<Duration> timeout) { deadlines_.Begin(timeout, nullptr); }
  Duration ForDevice(MemorySpace outputs) { return deadlines_.OfDevice(outputs) - clock_.now; }

  SetClock clock_;
  CallDeadlines deadlines_{clock_, seconds(4)};
};

TEST_F(CallDeadlinesTest, APartOfLevel2HasHalfOfWhatIsLeft) {
  Begin(std::nullopt);
  EXPECT_EQ(deadlines_.of_call(), clock_.now + seconds(4));
  EXPECT_EQ(deadlines_.OfL2(), clock_.now + seconds(2));
  clock_.now += seconds(2);
  EXPECT_TRUE(deadlines_.MayBlock());
  EXPECT_EQ(deadlines_.OfL2(), clock_.now + seconds(1));
  clock_.now += milliseconds(1);
  EXPECT_FALSE(deadlines_.MayBlock());
  EXPECT_FALSE(deadlines_.IsExceeded());
  clock_.now += seconds(3);
  EXPECT_EQ(deadlines_.OfL2(), clock_.now);
  EXPECT_TRUE(deadlines_.IsExceeded());
}

TEST_F(CallDeadlinesTest, ACallThatMayNotWaitExceedsNothing) {
  for (const Duration timeout : {Duration::zero(), Duration(-1)}) {
    Begin(timeout);
    EXPECT_EQ(deadlines_.of_call(), clock_.now);
    EXPECT_FALSE(deadlines_.IsExceeded());
  }
}

TEST_F(CallDeadlinesTest, WithoutADeadlineOnlyTheDeviceIsBounded) {
  Begin(Duration::max());
  EXPECT_EQ(deadlines_.of_call(), kNoDeadline);
  EXPECT_EQ(deadlines_.OfL2(), kNoDeadline);
  EXPECT_TRUE(deadlines_.MayBlock());
  EXPECT_EQ(ForDevice(MemorySpace::kHost), seconds(1));
  EXPECT_EQ(ForDevice(MemorySpace::kDevice), minutes(1));
}

TEST_F(CallDeadlinesTest, ADeviceThatTheHostCanReplaceHasHalfOfWhatIsLeft) {
  Begin(seconds(1));
  EXPECT_EQ(ForDevice(MemorySpace::kHost), milliseconds(500));
  clock_.now += milliseconds(900);
  EXPECT_EQ(ForDevice(MemorySpace::kHost), milliseconds(100)) << "at least";
  Begin(seconds(10));
  EXPECT_EQ(ForDevice(MemorySpace::kHost), seconds(1)) << "at most";
}

TEST_F(CallDeadlinesTest, ADeviceThatHasTheOutputsHasAllOfTheTime) {
  Begin(seconds(10));
  EXPECT_EQ(ForDevice(MemorySpace::kDevice), seconds(10));
  clock_.now += seconds(10);
  EXPECT_EQ(ForDevice(MemorySpace::kDevice), milliseconds(100)) << "at least";
  Begin(minutes(5));
  EXPECT_EQ(ForDevice(MemorySpace::kDevice), minutes(1)) << "at most";
  clock_.now += minutes(2);
  EXPECT_EQ(ForDevice(MemorySpace::kDevice), seconds(1)) << "other levels have taken the time";
}

TEST_F(CallDeadlinesTest, ACancelLeavesADeviceAMoment) {
  LookupCancel cancel;
  deadlines_.Begin(seconds(10), CancelPoint::Of(&cancel));
  EXPECT_FALSE(deadlines_.is_cancelled());
  cancel.Cancel();
  EXPECT_TRUE(deadlines_.is_cancelled());
  EXPECT_EQ(ForDevice(MemorySpace::kDevice), milliseconds(100));
  EXPECT_EQ(deadlines_.of_call(), clock_.now + seconds(10));
  Begin(seconds(10));
  EXPECT_FALSE(deadlines_.is_cancelled()) << "it was of the last call";
}

}  // namespace
}  // namespace hps
