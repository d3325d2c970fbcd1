#include "cli/output.h"

#include <gtest/gtest.h>

namespace hps::cli {
namespace {

TEST(OutputTest, OneLineShowsNothingThatATerminalWouldObey) {
  EXPECT_EQ(OneLine("plain, \xc3\xa9 and \xf0\x9f\x90\x98"),
            "plain, \xc3\xa9 and \xf0\x9f\x90\x98");
  EXPECT_EQ(OneLine("a\nb\x1b[2J\x7f"), "a b [2J ");
  EXPECT_EQ(OneLine("\xc2\x9b"), " ");  // a terminal's escape in one character
  EXPECT_EQ(OneLine("MANIFEST-0\xb0"
                    "5"),
            "MANIFEST-0?5");
  EXPECT_EQ(OneLine("cut \xe2\x82"), "cut ??");
  EXPECT_EQ(OneLine(""), "");
}

}  // namespace
}  // namespace hps::cli
