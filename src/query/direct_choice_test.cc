#include "query/direct_choice.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(DirectChoiceTest, ReadsFewMissesAndLeavesManyToTheHost) {
  DirectChoice choice;
  EXPECT_TRUE(choice.WantsDirectReads(4096)) << "nothing is known yet";
  choice.NoteMisses(4096, 410);
  EXPECT_TRUE(choice.WantsDirectReads(4096));
  EXPECT_TRUE(choice.WantsDirectReads(8192));
  EXPECT_FALSE(choice.WantsDirectReads(131'072)) << "as many of them are expected to miss";
  choice.NoteMisses(131'072, 1000);
  EXPECT_TRUE(choice.WantsDirectReads(131'072));
  choice.NoteMisses(0, 0);
  EXPECT_TRUE(choice.WantsDirectReads(131'072)) << "a lookup without keys says nothing";
}

TEST(DirectChoiceTest, LookupsWithoutMissesNeedNoReads) {
  DirectChoice choice;
  for (uint32_t i = 0; i < DirectChoice::kQuietLookups; ++i) {
    EXPECT_TRUE(choice.WantsDirectReads(4096)) << i;
    choice.NoteMisses(4096, 0);
  }
  EXPECT_FALSE(choice.WantsDirectReads(4096));
  choice.NoteMisses(4096, 1);
  EXPECT_TRUE(choice.WantsDirectReads(4096));
}

// A choice that expects so many misses of each lookup of 10,000 keys.
DirectChoice Expecting(size_t misses) {
  DirectChoice choice;
  choice.NoteMisses(10'000, misses);
  return choice;
}

// Makes lookups whose rows the device brings in `device` and the host in `host`; returns how many
// the device has read.
size_t ReadByDevice(DirectChoice& choice, size_t lookups, Duration device, Duration host) {
  size_t count = 0;
  for (size_t i = 0; i < lookups; ++i) {
    const bool direct = choice.WantsDirectReads(10'000);
    if (choice.wants_time()) choice.NoteTime(direct ? device : host);
    if (direct) ++count;
  }
  return count;
}

constexpr Duration kFast = std::chrono::microseconds(60);
constexpr Duration kSlow = std::chrono::microseconds(80);
constexpr size_t kLookups = 10 * DirectChoice::kTryEvery;

TEST(DirectChoiceTest, FollowsTheTimesWhereEitherWayMayBeFaster) {
  for (const size_t misses : {DirectChoice::kSureMisses, DirectChoice::kUntimedMax - 1,
                              DirectChoice::kUntimedMax, DirectChoice::kMissesMax}) {
    DirectChoice device_wins = Expecting(misses);
    EXPECT_EQ(ReadByDevice(device_wins, kLookups, kFast, kSlow),
              kLookups - DirectChoice::kFirstTimes - kLookups / DirectChoice::kTryEvery + 1);
    DirectChoice host_wins = Expecting(misses);
    EXPECT_EQ(ReadByDevice(host_wins, kLookups, kSlow, kFast),
              DirectChoice::kFirstTimes + kLookups / DirectChoice::kTryEvery - 1);
  }
}

TEST(DirectChoiceTest, NoticesThatTheOtherWayHasBecomeFaster) {
  DirectChoice choice = Expecting(DirectChoice::kUntimedMax);
  ReadByDevice(choice, 100, kSlow, kFast);
  ReadByDevice(choice, 40 * DirectChoice::kTryEvery, kFast, kSlow);
  EXPECT_GT(ReadByDevice(choice, 1000, kFast, kSlow), 990u);
}

TEST(DirectChoiceTest, FewAndManyMissesNeedNoTimes) {
  DirectChoice few = Expecting(DirectChoice::kSureMisses - 1);
  EXPECT_EQ(ReadByDevice(few, 100, kSlow, kFast), 100u);
  DirectChoice many = Expecting(DirectChoice::kMissesMax + 1);
  EXPECT_EQ(ReadByDevice(many, 100, kFast, kSlow), 0u);
}

TEST(DirectChoiceTest, FewLookupsAreTimed) {
  DirectChoice choice = Expecting(DirectChoice::kUntimedMax);
  ReadByDevice(choice, 100, kFast, kSlow);
  size_t timed = 0;
  for (size_t i = 0; i < kLookups; ++i) {
    ReadByDevice(choice, 1, kFast, kSlow);
    if (choice.wants_time()) ++timed;
  }
  EXPECT_EQ(timed, 2 * kLookups / DirectChoice::kTryEvery);
}

TEST(DirectChoiceTest, WithoutTimesTheNumberOfMissesDecides) {
  DirectChoice fewer = Expecting(DirectChoice::kUntimedMax - 1);
  DirectChoice more = Expecting(DirectChoice::kUntimedMax);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(fewer.WantsDirectReads(10'000));
    ASSERT_FALSE(more.WantsDirectReads(10'000));
  }
}

// Lookups that leave it to the host until the next one that does not.
uint32_t LeftToTheHost(DirectChoice& choice) {
  uint32_t count = 0;
  while (!choice.WantsDirectReads(100)) ++count;
  return count;
}

TEST(DirectChoiceTest, ReadsInVainAreTriedLessAndLessOften) {
  DirectChoice choice;
  for (uint32_t pause = 1; pause <= DirectChoice::kPauseMax; pause *= 2) {
    choice.NoteReads(100, 49);
    EXPECT_EQ(LeftToTheHost(choice), pause);
  }
  choice.NoteReads(100, 0);
  EXPECT_EQ(LeftToTheHost(choice), DirectChoice::kPauseMax);
  choice.NoteReads(0, 0);
  EXPECT_EQ(LeftToTheHost(choice), 0u) << "without misses they were not in vain";
  choice.NoteReads(100, 50);
  EXPECT_EQ(LeftToTheHost(choice), 0u);
  choice.NoteReads(100, 0);
  EXPECT_EQ(LeftToTheHost(choice), 1u) << "a success ends the long pauses";
}

}  // namespace
}  // namespace hps
