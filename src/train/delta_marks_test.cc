#include "train/delta_marks.h"

#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

using Keys = std::vector<Key>;

TEST(DeltaMarks, ListsWhatAReaderHasHadUntilItAcknowledges) {
  DeltaMarks marks;
  marks.AddErased(9, true, false, 2);
  marks.AddErased(-1, true, true, 3);
  marks.AddErased(5, false, false, 3);
  EXPECT_EQ(marks.ErasedKeys(DeltaReader::kPublication), (Keys{-1, 9}));
  EXPECT_EQ(marks.ErasedKeys(DeltaReader::kCheckpoint), (Keys{-1}));
  marks.Acknowledge(DeltaReader::kPublication, {.change = 2, .step = 1});
  EXPECT_EQ(marks.of(DeltaReader::kPublication).change, 2U);
  EXPECT_EQ(marks.ErasedKeys(DeltaReader::kPublication), (Keys{-1}));
  marks.Acknowledge(DeltaReader::kPublication, {.change = 4, .step = 2});
  EXPECT_EQ(marks.ErasedKeys(DeltaReader::kPublication), Keys());
  EXPECT_EQ(marks.ErasedKeys(DeltaReader::kCheckpoint), (Keys{-1}));
}

TEST(DeltaMarks, AnOlderMarkDoesNotReplaceANewerButZeroBeginsAgain) {
  DeltaMarks marks;
  marks.Acknowledge(DeltaReader::kCheckpoint, {.change = 7, .step = 3});
  marks.Acknowledge(DeltaReader::kCheckpoint, {.change = 5, .step = 2});
  EXPECT_EQ(marks.of(DeltaReader::kCheckpoint).change, 7U);
  marks.Acknowledge(DeltaReader::kCheckpoint, {});
  EXPECT_EQ(marks.of(DeltaReader::kCheckpoint).change, 0U);
}

}  // namespace
}  // namespace hps
