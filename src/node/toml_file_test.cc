#include "node/toml_file.h"

#include <gtest/gtest.h>

#include <string>

namespace hps {
namespace {

// "line:column" of the key with more than three parts; "" when there is none.
std::string DeepKey(std::string_view text) {
  const std::optional<toml::source_position> place = FindDeepKey(text, 3);
  if (!place.has_value()) return "";
  return std::to_string(place->line) + ":" + std::to_string(place->column);
}

TEST(TomlFileTest, CountsThePartsOfKeys) {
  EXPECT_EQ(DeepKey(""), "");
  EXPECT_EQ(DeepKey("a.b.c = 1"), "");
  EXPECT_EQ(DeepKey("a.b.c.d = 1"), "1:6");
  EXPECT_EQ(DeepKey("[a.b.c]\na.b.c = 1\n"), "");
  EXPECT_EQ(DeepKey("[a.b]\n[[a.b.c.d]]"), "2:8");
  EXPECT_EQ(DeepKey("a = { b.c.d.e = 1 }"), "1:12");
  EXPECT_EQ(DeepKey("a . b\t.c . d"), "1:10");
  EXPECT_EQ(DeepKey("'a'.\"b.b.b.b\".c = 1"), "");
  EXPECT_EQ(DeepKey("'='.\"#\".'\\'.\"\\\"\" = 1"), "1:12");
  EXPECT_EQ(DeepKey("\xc3\xa4.\xc3\xa4.\xc3\xa4.\xc3\xa4 = 1"), "1:9");
}

TEST(TomlFileTest, LeavesValuesAndCommentsAlone) {
  EXPECT_EQ(DeepKey("a = \"127.0.0.1:80\"  # 1.2.3.4\nb = '1.2.3.4'"), "");
  EXPECT_EQ(DeepKey("a = [0.1, 0.2, 0.3, 0.4, 1e-0.5]"), "");
  EXPECT_EQ(DeepKey("a = \"\"\"\n1.2.3.4 \"\" \\\"\"\" 1.2.3.4\"\"\"\nb = '''\n1.2.3.4'''"), "");
  EXPECT_EQ(DeepKey("a = 1979-05-27T07:32:00.999\nb = 1.5"), "");
}

// Catches: an overlooked end of a string, so that later keys are taken for its content.
TEST(TomlFileTest, FindsKeysBehindStrings) {
  const std::string deep = ", { a.b.c.d = 1 } ]";
  EXPECT_EQ(DeepKey("x = [ \"\"" + deep), "1:18");
  EXPECT_EQ(DeepKey("x = [ \"\\\\\"" + deep), "1:20");
  EXPECT_EQ(DeepKey("x = [ '\\'" + deep), "1:19");
  EXPECT_EQ(DeepKey("x = [ \"\"\"a\"\"\"" + deep), "1:23");
  EXPECT_EQ(DeepKey("x = [ \"\"\"a\"\"\"\"" + deep), "1:24");
  EXPECT_EQ(DeepKey("x = [ '''a'''''" + deep), "1:25");
  EXPECT_EQ(DeepKey("x = [ \"not closed\na.b.c.d = 1"), "2:6");
}

}  // namespace
}  // namespace hps
