#include "cli/output.h"

#include <gtest/gtest.h>

namespace hps::cli {
namespace {

TEST(OutputTest, NumbersForPeopleHaveOneDigitBehindThePoint) {
  EXPECT_EQ(ReadableBytes(0), "0 B");
  EXPECT_EQ(ReadableBytes(1023), "1023 B");
  EXPECT_EQ(ReadableBytes(3'355'443), "3.2 MiB");
  EXPECT_EQ(ReadableCount(999), "999");
  EXPECT_EQ(ReadableCount(1'200'000), "1.2 M");
  EXPECT_EQ(Fixed(2.345, 2), "2.35");
}

}  // namespace
}  // namespace hps::cli
