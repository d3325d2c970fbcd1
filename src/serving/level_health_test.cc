#include "serving/level_health.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(LevelHealthTest, EndsWhenTheOpenChangeIsPublished) {
  ApplyEpochs epochs;
  LevelHealth health(epochs);
  health.Quarantine();  // no change is open: nothing can be missed
  EXPECT_FALSE(health.quarantined());
  const ApplyEpoch epoch = epochs.Begin();
  health.Quarantine();
  EXPECT_TRUE(health.quarantined());
  epochs.Publish(epoch);
  EXPECT_FALSE(health.quarantined());
  health.QuarantineUntilCleared();
  EXPECT_TRUE(health.quarantined());
  health.Clear();
  EXPECT_FALSE(health.quarantined());
}

// L1 holds the old row until it is refreshed, long after the change was published. Catches a bypass
// that ends at publication: a session that had seen the new row below would be shown the old one.
TEST(LevelHealthTest, OfAShardThatIsRefreshedEndsWhenItHasBeen) {
  ApplyEpochs epochs;
  LevelHealth health(epochs, LevelHealth::Applied::kWhenNoted);
  for (int change = 0; change < 2; ++change) epochs.Publish(epochs.Begin());
  health.NoteApplied(1);
  health.Quarantine();
  EXPECT_TRUE(health.quarantined()) << "it lacks the second change";
  health.NoteApplied(2);
  EXPECT_FALSE(health.quarantined());
  health.Quarantine();
  EXPECT_FALSE(health.quarantined()) << "it lacks nothing";
}

}  // namespace
}  // namespace hps
