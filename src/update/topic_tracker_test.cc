#include "update/topic_tracker.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(TopicTracker, AsksForRangesAtFirst) {
  const TopicTracker tracker({.table = "m/t"});
  EXPECT_TRUE(tracker.question().has_value());
  EXPECT_FALSE(tracker.IsWanted(0));
}

}  // namespace
}  // namespace hps
