#include "network/cpu/fitting_shapes.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "testing/await.h"

namespace hps {
namespace {

// A batch and a number of keys, which are free, and a width of 3; fit where their product is at
// most 1000.
class FittingShapesTest : public testing::Test {
 protected:
  absl::Status Measure(const FittingShapes::Dims& dims) {
    measured_.push_back(dims);
    if (dims[2] != 3) return absl::InternalError("the width is not 3");
    return dims[0] * dims[1] <= 1000 ? absl::OkStatus() : absl::OutOfRangeError("too large");
  }

  std::vector<FittingShapes::Dims> measured_;
  FittingShapes shapes_{{true, true, false},
                        [this](const FittingShapes::Dims& dims) { return Measure(dims); }};
};

// Catches: shapes that are measured although larger ones fit.
TEST_F(FittingShapesTest, SmallerShapesThanOneThatFitsAreNotMeasured) {
  EXPECT_TRUE(shapes_.Check({33, 9, 3}).ok());
  EXPECT_EQ(measured_, (std::vector<FittingShapes::Dims>{{64, 16, 3}, {33, 9, 3}}))
      << "1,024 elements do not fit";
  measured_.clear();
  EXPECT_TRUE(shapes_.Check({33, 8, 3}).ok());
  EXPECT_TRUE(shapes_.Check({1, 9, 3}).ok());
  EXPECT_TRUE(shapes_.Check({0, 0, 3}).ok());
  EXPECT_TRUE(measured_.empty());
  EXPECT_TRUE(shapes_.Check({60, 5, 3}).ok());
  for (int64_t batch = 1; batch <= 64; ++batch) EXPECT_TRUE(shapes_.Check({batch, 8, 3}).ok());
  EXPECT_EQ(measured_, (std::vector<FittingShapes::Dims>{{64, 8, 3}}));
}

TEST_F(FittingShapesTest, ShapesThatDoNotFitAreRefusedEachTime) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(shapes_.Check({100, 11, 3}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(measured_.size(), 2U) << "rounded up, and as they are";
  EXPECT_TRUE(shapes_.Check({100, 10, 3}).ok());
  EXPECT_EQ(measured_.size(), 3U) << "what they are rounded up to is known";
}

// Catches: fixed dimensions that count as smaller ones.
TEST_F(FittingShapesTest, FixedDimensionsMustBeTheSame) {
  EXPECT_TRUE(shapes_.Check({8, 8, 3}).ok());
  EXPECT_EQ(shapes_.Check({8, 8, 2}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(measured_.back(), (FittingShapes::Dims{8, 8, 2}));
}

TEST_F(FittingShapesTest, ManyShapesAreKeptInBoundedMemory) {
  for (int64_t batch = 1; batch < 6000; ++batch)
    EXPECT_EQ(shapes_.Check({batch, 1, 3}).ok(), batch <= 1000) << batch;
  for (int64_t batch = 1; batch <= 1000; ++batch)
    EXPECT_TRUE(shapes_.Check({batch, 1, 3}).ok()) << batch;
}

// Catches: requests of many lengths that measure again and again, and one too many that drops all.
TEST(FittingShapesLengthsTest, EachLengthIsMeasuredOnce) {
  size_t measured = 0;
  FittingShapes shapes({true, false}, [&](const FittingShapes::Dims&) {
    ++measured;
    return absl::OkStatus();
  });
  for (int round = 0; round < 2; ++round) {
    for (int64_t keys = 1; keys <= 4096; ++keys) EXPECT_TRUE(shapes.Check({8, keys}).ok());
  }
  EXPECT_EQ(measured, 4096U);
  EXPECT_TRUE(shapes.Check({8, 5000}).ok());
  measured = 0;
  for (int64_t keys = 2; keys <= 4096; ++keys) EXPECT_TRUE(shapes.Check({5, keys}).ok());
  EXPECT_EQ(measured, 0U) << "one more drops one";
}

// Catches: a run of known shapes that waits while other shapes are being measured.
TEST(FittingShapesWaitTest, KnownShapesDoNotWaitForOthers) {
  Latch is_measuring(1);
  Latch may_end(1);
  bool was_let_go = false;
  FittingShapes shapes({true}, [&](const FittingShapes::Dims& dims) {
    if (dims[0] <= 8) return absl::OkStatus();
    is_measuring.CountDown();
    was_let_go = may_end.WaitUntil(DeadlineAfter(RealClock(), kAwaitMax));
    return absl::OkStatus();
  });
  EXPECT_TRUE(shapes.Check({8}).ok());
  std::thread other([&] { EXPECT_TRUE(shapes.Check({100}).ok()); });
  EXPECT_TRUE(AwaitLatch(is_measuring));
  EXPECT_TRUE(shapes.Check({7}).ok());
  may_end.CountDown();
  other.join();
  EXPECT_TRUE(was_let_go) << "the known shape waited for the measurement";
}

}  // namespace
}  // namespace hps
