#include "base/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace hps {
namespace {

std::string Json(std::string_view text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

TEST(TextTest, PrintableTextIsOneLineOfUtf8) {
  EXPECT_EQ(PrintableText(""), "");
  EXPECT_EQ(PrintableText("plain"), "plain");
  EXPECT_EQ(PrintableText(std::string_view("a\nb\tc\x7f\0d", 8)), "a b c  d");
  EXPECT_EQ(PrintableText("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x98"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x98");
  EXPECT_EQ(PrintableText("\x1b[31m"), " [31m");
  EXPECT_EQ(PrintableText("\xc2\x9b"
                          "31m"),
            " 31m");  // a terminal may take it for ESC [
}

TEST(TextTest, PrintDoubleReadsBackAsTheSameNumber) {
  EXPECT_EQ(PrintDouble(0.1), "0.1");
  EXPECT_EQ(PrintDouble(1), "1.0");
  EXPECT_EQ(PrintDouble(0.123456789), "0.123456789");
  EXPECT_EQ(PrintDouble(123456.789), "123456.789");
  EXPECT_EQ(PrintDouble(-1e300), "-1e+300");
  EXPECT_EQ(PrintDouble(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(PrintDouble(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(TextTest, BytesThatAreNoUtf8AreReplacedOneByOne) {
  EXPECT_EQ(PrintableText("\xff\xfe"), "??");
  EXPECT_EQ(PrintableText("\xc3"), "?");                 // cut
  EXPECT_EQ(PrintableText("\xe2\x82"), "??");            // cut
  EXPECT_EQ(PrintableText("\xc0\xaf"), "??");            // a longer form of '/'
  EXPECT_EQ(PrintableText("\xe0\x80\xaf"), "???");       // likewise
  EXPECT_EQ(PrintableText("\xed\xa0\x80"), "???");       // half a surrogate pair
  EXPECT_EQ(PrintableText("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(PrintableText("\xe2(\xa1"), "?(?");
  EXPECT_EQ(PrintableText("MANIFEST-0\xb0"
                          "5"),
            "MANIFEST-0?5");  // of a damaged file
}

TEST(TextTest, JsonStringsEscapeWhatJsonMustNotHold) {
  EXPECT_EQ(Json("plain"), "\"plain\"");
  EXPECT_EQ(Json("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(Json("a\nb\rc\td\x01"), "\"a\\nb\\rc\\td\\u0001\"");
  EXPECT_EQ(Json("\xc2\x85\x7f"), "\"\\u0085\\u007f\"");
  EXPECT_EQ(Json("\xe2\x82\xac\xff"), "\"\xe2\x82\xac\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace hps
