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
