#include "types/key_text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace hps {
namespace {

TEST(KeyTextTest, ReadsAllKeysOf64Bits) {
  EXPECT_EQ(ParseKey("0"), 0);
  EXPECT_EQ(ParseKey("-7"), -7);
  EXPECT_EQ(ParseKey("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(ParseKey("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ParseKey("9223372036854775808"), INT64_MIN);
  EXPECT_EQ(ParseKey("18446744073709551615"), -1);
}

TEST(KeyTextTest, RefusesEverythingElse) {
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1,2", "1.0", "1e1", "0x1", "x",
                           "-9223372036854775809", "18446744073709551616"})
    EXPECT_EQ(ParseKey(text), std::nullopt) << text;
}

}  // namespace
}  // namespace hps
