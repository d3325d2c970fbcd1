#include "l2_redis/change_numbers.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(ChangeNumbersTest, TheHighestIsKept) {
  ChangeNumbers numbers(2);
  const auto now = [] { return uint64_t{0}; };
  EXPECT_EQ(numbers.Seen(0, 0), 0u);
  EXPECT_EQ(numbers.Next(0), 1u);
  EXPECT_EQ(numbers.Next(0), 2u);
  numbers.Note(0, 0, 2, now);
  numbers.Note(0, 0, 1, now);
  EXPECT_EQ(numbers.Seen(0, 0), 2u);
  EXPECT_EQ(numbers.Seen(1, 0), 0u);
}

TEST(ChangeNumbersTest, NewNamesBeginAtZeroAndOldOnesAreForgotten) {
  ChangeNumbers numbers(1);
  uint64_t ends = 3;
  const auto now = [&ends] { return ends; };
  numbers.Note(0, 3, 100, now);
  EXPECT_EQ(numbers.Seen(0, 3), 100u);
  ends = 4;
  EXPECT_EQ(numbers.Seen(0, 4), 0u);
  numbers.Note(0, 3, 200, now);  // late
  EXPECT_EQ(numbers.Seen(0, 4), 0u);
  numbers.Note(0, 4, 7, now);
  numbers.Note(0, 3, 300, now);
  EXPECT_EQ(numbers.Seen(0, 4), 7u);
  EXPECT_EQ(numbers.Seen(0, 3), 0u);
}

TEST(ChangeNumbersTest, AnyCountOfEndsIsFollowed) {
  ChangeNumbers numbers(1);
  for (const uint64_t ends :
       {uint64_t{600'000}, (uint64_t{1} << 20) - 1, uint64_t{1} << 20, uint64_t{5'000'000'000}}) {
    numbers.Note(0, ends, 6, [ends] { return ends; });
    EXPECT_EQ(numbers.Seen(0, ends), 6u);
  }
}

// Newer names get a note while one of the names of before is noted.
TEST(ChangeNumbersTest, ALateNoteDoesNotReplaceANewerOne) {
  ChangeNumbers numbers(1);
  uint64_t ends = 1;
  numbers.Note(0, 1, 9, [&] {
    if (ends == 1) {
      ends = 2;
      numbers.Note(0, 2, 3, [&] { return ends; });
      return uint64_t{1};  // what it was before
    }
    return ends;
  });
  EXPECT_EQ(numbers.Seen(0, 2), 3u);
}

}  // namespace
}  // namespace hps
