#include "bench/markup.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/test_well_formed.h"

namespace hps::bench {
namespace {

TEST(MarkupTest, EscapesMarkupAndDropsControlCharacters) {
  EXPECT_EQ(Escaped("<a href=\"x\">'&'\n\x01</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;  &lt;/a&gt;");
  EXPECT_EQ(Escaped("\u00b5s"), "\u00b5s");
}

TEST(MarkupTest, NumbersAreShort) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(0.53792), "0.538");
  EXPECT_EQ(ShortNumber(1.3), "1.3");
  EXPECT_EQ(ShortNumber(46.617), "46.6");
  EXPECT_EQ(ShortNumber(138.109), "138");
  EXPECT_EQ(ShortNumber(1000), "1000");
  EXPECT_EQ(ShortNumber(4096), "4096");
  EXPECT_EQ(ShortNumber(33778.7), "33.8 k");
  EXPECT_EQ(ShortNumber(1'000'000), "1 M");
  EXPECT_EQ(ShortNumber(-2.5e9), "-2.5 G");
  EXPECT_EQ(ShortNumber(NAN), "-");
  EXPECT_EQ(ShortNumber(HUGE_VAL), "-");
}

// The checker that other tests rely on finds what it is there for.
TEST(MarkupTest, TheCheckOfPagesFindsWhatIsMalformed) {
  EXPECT_EQ(WhatIsMalformed("<!DOCTYPE html>\n<a b=\"&lt;>\"><c/>x &amp; y</a>"), "");
  for (const char* malformed :
       {"<a>", "<a></b>", "</a>", "<a", "<a b=\"<\"/>", "x & y", "a > b", "<a b=\"&x\"/>"}) {
    EXPECT_NE(WhatIsMalformed(malformed), "") << malformed;
  }
}

}  // namespace
}  // namespace hps::bench
