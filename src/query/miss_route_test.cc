#include "query/miss_route.h"

#include <gtest/gtest.h>

#include "query/test_query_world.h"

namespace hps {
namespace {

// One query of a table that has a level 2. The call waits for all rows.
class MissRouteOfTableTest : public testing::Test {
 protected:
  MissRouteOfTableTest() {
    work_.table = table_.served.get();
    work_.first_query = work_.last_query = &query_;
    work_.asks_l2[0] = true;
    work_.top = TableLookup::Top::kL1;
  }

  const WorldTable table_ = MakeWorldTable({}, nullptr);
  QueryLookup query_, second_query_;
  TableLookup work_;
};

TEST_F(MissRouteOfTableTest, AFirstPartThatCantBlockIsStagedAhead) {
  EXPECT_TRUE(MissRoute::IsAskedAtOnce(work_));
  EXPECT_TRUE(MissRoute::IsStaged(work_));
  EXPECT_TRUE(MissRoute::IsStagedAhead(work_));
  EXPECT_EQ(MissRoute::ReadByDevice(work_), nullptr) << "no device can read it";
}

TEST_F(MissRouteOfTableTest, ACallThatMayNotWaitIsNotStagedAhead) {
  work_.hit_rate_threshold = 0.9;
  EXPECT_TRUE(MissRoute::IsStaged(work_));
  EXPECT_FALSE(MissRoute::IsStagedAhead(work_));
}

TEST_F(MissRouteOfTableTest, ATableThatIsNamedTwiceIsNotStaged) {
  work_.last_query = &second_query_;
  EXPECT_TRUE(MissRoute::IsAskedAtOnce(work_));
  EXPECT_FALSE(MissRoute::IsStaged(work_));
  EXPECT_FALSE(MissRoute::IsStagedAhead(work_));
}

TEST_F(MissRouteOfTableTest, APartThatCanBlockOrIsBypassedIsLeftToTheLevelFetch) {
  table_.l2_faults->set_can_block(true);
  EXPECT_FALSE(MissRoute::IsAskedAtOnce(work_));
  EXPECT_FALSE(MissRoute::IsStaged(work_));
  table_.l2_faults->set_can_block(false);
  work_.asks_l2[0] = false;
  EXPECT_FALSE(MissRoute::IsAskedAtOnce(work_));
  EXPECT_FALSE(MissRoute::IsStaged(work_));
}

TEST(MissRouteTest, ReadsFewMissesAndLeavesManyToTheHost) {
  MissRoute route;
  EXPECT_TRUE(route.LetsDeviceRead(4096)) << "nothing is known yet";
  route.NoteProbe({.keys = 4096, .misses = 410});
  EXPECT_TRUE(route.LetsDeviceRead(4096));
  EXPECT_TRUE(route.LetsDeviceRead(8192));
  EXPECT_FALSE(route.LetsDeviceRead(131'072)) << "as many of them are expected to miss";
  route.NoteProbe({.keys = 131'072, .misses = 1000});
  EXPECT_TRUE(route.LetsDeviceRead(131'072));
  route.NoteProbe({});
  EXPECT_TRUE(route.LetsDeviceRead(131'072)) << "a lookup without keys says nothing";
}

TEST(MissRouteTest, LookupsWithoutMissesNeedNoReads) {
  MissRoute route;
  for (uint32_t i = 0; i < MissRoute::kQuietLookups; ++i) {
    EXPECT_TRUE(route.LetsDeviceRead(4096)) << i;
    route.NoteProbe({.keys = 4096, .misses = 0});
  }
  EXPECT_FALSE(route.LetsDeviceRead(4096));
  route.NoteProbe({.keys = 4096, .misses = 1});
  EXPECT_TRUE(route.LetsDeviceRead(4096));
}

// A route that expects so many misses of each lookup of 10,000 keys.
MissRoute Expecting(size_t misses) {
  MissRoute route;
  route.NoteProbe({.keys = 10'000, .misses = misses});
  return route;
}

// Makes lookups whose rows the device brings in `device` and the host in `host`; returns how many
// the device has read.
size_t ReadByDevice(MissRoute& route, size_t lookups, Duration device, Duration host) {
  size_t count = 0;
  for (size_t i = 0; i < lookups; ++i) {
    const bool direct = route.LetsDeviceRead(10'000);
    if (route.wants_time()) route.NoteTime(direct ? device : host);
    if (direct) ++count;
  }
  return count;
}

constexpr Duration kFast = std::chrono::microseconds(60);
constexpr Duration kSlow = std::chrono::microseconds(80);
constexpr size_t kLookups = 10 * MissRoute::kTryEvery;

TEST(MissRouteTest, FollowsTheTimesWhereEitherWayMayBeFaster) {
  for (const size_t misses : {MissRoute::kSureMisses, MissRoute::kUntimedMax - 1,
                              MissRoute::kUntimedMax, MissRoute::kMissesMax}) {
    MissRoute device_wins = Expecting(misses);
    EXPECT_EQ(ReadByDevice(device_wins, kLookups, kFast, kSlow),
              kLookups - MissRoute::kFirstTimes - kLookups / MissRoute::kTryEvery + 1);
    MissRoute host_wins = Expecting(misses);
    EXPECT_EQ(ReadByDevice(host_wins, kLookups, kSlow, kFast),
              MissRoute::kFirstTimes + kLookups / MissRoute::kTryEvery - 1);
  }
}

TEST(MissRouteTest, NoticesThatTheOtherWayHasBecomeFaster) {
  MissRoute route = Expecting(MissRoute::kUntimedMax);
  ReadByDevice(route, 100, kSlow, kFast);
  ReadByDevice(route, 40 * MissRoute::kTryEvery, kFast, kSlow);
  EXPECT_GT(ReadByDevice(route, 1000, kFast, kSlow), 990u);
}

TEST(MissRouteTest, FewAndManyMissesNeedNoTimes) {
  MissRoute few = Expecting(MissRoute::kSureMisses - 1);
  EXPECT_EQ(ReadByDevice(few, 100, kSlow, kFast), 100u);
  MissRoute many = Expecting(MissRoute::kMissesMax + 1);
  EXPECT_EQ(ReadByDevice(many, 100, kFast, kSlow), 0u);
}

TEST(MissRouteTest, FewLookupsAreTimed) {
  MissRoute route = Expecting(MissRoute::kUntimedMax);
  ReadByDevice(route, 100, kFast, kSlow);
  size_t timed = 0;
  for (size_t i = 0; i < kLookups; ++i) {
    ReadByDevice(route, 1, kFast, kSlow);
    if (route.wants_time()) ++timed;
  }
  EXPECT_EQ(timed, 2 * kLookups / MissRoute::kTryEvery);
}

TEST(MissRouteTest, WithoutTimesTheNumberOfMissesDecides) {
  MissRoute fewer = Expecting(MissRoute::kUntimedMax - 1);
  MissRoute more = Expecting(MissRoute::kUntimedMax);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(fewer.LetsDeviceRead(10'000));
    ASSERT_FALSE(more.LetsDeviceRead(10'000));
  }
}

// The device has answered so many of 100 misses.
void NoteReads(MissRoute& route, size_t answered) {
  route.NoteProbe(
      {.keys = 100, .misses = 100, .asked_of_device = 100, .answered_by_device = answered});
}

// Counts the lookups whose misses the host answers, up to the next one that the device may answer.
uint32_t LeftToTheHost(MissRoute& route) {
  uint32_t count = 0;
  while (!route.LetsDeviceRead(100)) ++count;
  return count;
}

TEST(MissRouteTest, ReadsInVainAreTriedLessAndLessOften) {
  MissRoute route;
  for (uint32_t pause = 1; pause <= MissRoute::kPauseMax; pause *= 2) {
    NoteReads(route, 49);
    EXPECT_EQ(LeftToTheHost(route), pause);
  }
  NoteReads(route, 0);
  EXPECT_EQ(LeftToTheHost(route), MissRoute::kPauseMax);
  route.NoteProbe({});
  EXPECT_EQ(LeftToTheHost(route), 0u) << "without misses they were not in vain";
  NoteReads(route, 50);
  EXPECT_EQ(LeftToTheHost(route), 0u);
  NoteReads(route, 0);
  EXPECT_EQ(LeftToTheHost(route), 1u) << "a success ends the long pauses";
}

}  // namespace
}  // namespace hps
