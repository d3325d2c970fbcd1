#include "update/topic_tracker.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(TopicTracker, AsksForRangesAtFirst) {
  const TopicTracker tracker({.table = "m/t"});
  EXPECT_TRUE(tracker.question().has_value());
  EXPECT_FALSE(tracker.IsWanted(0));
}

// A topic of two partitions with 10 records each, the first without a leader.
TopicView WithoutLeader(const TopicTracker& tracker) {
  return {.exists = true,
          .partition_count = 2,
          .ranges = {{.is_known = false}, {.high = 10, .start = 10}},
          .question = tracker.question().value_or(0)};
}
TopicView WithLeaders(const TopicTracker& tracker) {
  TopicView view = WithoutLeader(tracker);
  view.ranges[0] = {.high = 10, .start = 10};
  return view;
}

// Catches: one partition without a leader keeps the others from being read.
TEST(TopicTracker, APartitionWithoutALeaderWaitsAlone) {
  std::vector<UpdateEvent> events;
  TopicTracker tracker({.table = "m/t", .positions = {{0, 1, 4}, {1, 1, 5}}});
  tracker.Learn(WithoutLeader(tracker), &events);
  EXPECT_FALSE(tracker.IsWanted(0));
  EXPECT_TRUE(tracker.IsWanted(1));
  ASSERT_TRUE(tracker.question().has_value()) << "it is asked for again";
  tracker.Learn(WithLeaders(tracker), &events);
  EXPECT_TRUE(tracker.IsWanted(0));
  EXPECT_TRUE(tracker.IsWanted(1));
  EXPECT_EQ(tracker.partitions()[0].next, 4u);
  EXPECT_FALSE(tracker.question().has_value());
  EXPECT_TRUE(events.empty());
}

TEST(TopicTracker, ATopicThatWasMadeAgainBeginsWhenAllPartitionsAreKnown) {
  std::vector<UpdateEvent> events;
  TopicTracker tracker({.table = "m/t", .positions = {{0, 1, 4}, {1, 1, 50}}});
  tracker.Learn(WithoutLeader(tracker), &events);
  EXPECT_FALSE(tracker.IsWanted(1));
  tracker.Learn(WithLeaders(tracker), &events);
  EXPECT_TRUE(tracker.IsWanted(0));
  EXPECT_EQ(tracker.generation(), 2);
  EXPECT_EQ(tracker.partitions()[0].next, 0u);
}

// Where a partition begins can't be known without it, nor which generation its records are of.
TEST(TopicTracker, TheFirstReadWaitsForEveryLeader) {
  std::vector<UpdateEvent> events;
  TopicTracker tracker({.table = "m/t"});
  tracker.Learn(WithoutLeader(tracker), &events);
  EXPECT_FALSE(tracker.IsWanted(1));
  ASSERT_TRUE(tracker.question().has_value());
  tracker.Learn(WithLeaders(tracker), &events);
  EXPECT_TRUE(tracker.IsWanted(0));
  EXPECT_TRUE(tracker.IsWanted(1));
}

// An empty partition does not tell whether its deleted records were from before the time.
TEST(TopicTracker, AnEmptyPartitionHasLostNothingByTime) {
  for (const uint64_t end : {7, 8}) {
    std::vector<UpdateEvent> events;
    TopicTracker tracker({.table = "m/t", .start = {.kind = UpdateStart::Kind::kTime}});
    tracker.Learn({.exists = true,
                   .partition_count = 1,
                   .ranges = {{.low = 7, .high = end, .start = 7}},
                   .question = *tracker.question()},
                  &events);
    tracker.Take(0, 7, 0, &events);
    const bool is_lost = events.front().kind == UpdateEvent::Kind::kRetentionPassed;
    EXPECT_EQ(is_lost, end == 8);
    EXPECT_EQ(events.back().kind, UpdateEvent::Kind::kStarted);
  }
}

}  // namespace
}  // namespace hps
