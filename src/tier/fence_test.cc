#include "tier/fence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hps {
namespace {

TEST(FenceTest, AdmitsUntilTheWatermarkIsAbove) {
  Fence fence(0);
  const std::vector<Key> keys = {1, -1, INT64_MIN};
  ASSERT_EQ(fence.Raise(keys, 5, kNoDeadline), absl::OkStatus());
  for (Key key : keys) {
    EXPECT_FALSE(Fence::Insertion(fence, 4).Admits(key));
    EXPECT_TRUE(Fence::Insertion(fence, 5).Admits(key));
  }
  ASSERT_EQ(fence.Raise(keys, 3, kNoDeadline), absl::OkStatus());  // never lowers
  EXPECT_FALSE(Fence::Insertion(fence, 4).Admits(1));
}

TEST(FenceTest, RaiseWaitsForEarlierInsertionsOnly) {
  Fence fence(0);
  const std::vector<Key> keys = {7};
  auto earlier = std::make_unique<Fence::Insertion>(fence, 0);
  std::atomic<bool> raised = false;
  std::thread raiser([&] {
    EXPECT_EQ(fence.Raise(keys, 1, kNoDeadline), absl::OkStatus());
    raised = true;
  });
  // The watermark is raised before Raise waits: a later insertion is refused and delays nothing.
  for (;;) {
    Fence::Insertion later(fence, 0);
    if (!later.Admits(7)) break;
  }
  EXPECT_FALSE(raised);
  earlier.reset();
  raiser.join();
  EXPECT_TRUE(raised);
}

// An insertion that hangs must not block the applier, and a raise that timed out must not let the
// next one forget the insertion.
TEST(FenceTest, RaiseGivesUpAtItsDeadlineAndTheNextOneStillWaits) {
  Fence fence(0);
  const std::vector<Key> keys = {7};
  auto stuck = std::make_unique<Fence::Insertion>(fence, 0);
  for (ApplyEpoch epoch : {1, 2, 3}) {
    EXPECT_EQ(fence.Raise(keys, epoch, RealClock().Now()).code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_FALSE(Fence::Insertion(fence, epoch - 1).Admits(7)) << "the watermark is up";
  }
  stuck.reset();
  EXPECT_EQ(fence.Raise(keys, 4, RealClock().Now()), absl::OkStatus()) << "nothing to wait for";
}

TEST(ApplyEpochsTest, BeginsAndPublishesInTurn) {
  ApplyEpochs epochs;
  EXPECT_EQ(epochs.Begin(), 1u);
  EXPECT_EQ(epochs.published(), 0u);
  EXPECT_EQ(epochs.begun(), 1u);
  epochs.Publish(1);
  EXPECT_EQ(epochs.published(), 1u);
}

}  // namespace
}  // namespace hps
