#include "base/content_hash.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace hps {
namespace {

std::string DigitsOf(std::initializer_list<std::string_view> pieces) {
  ContentHash hash;
  for (const std::string_view piece : pieces) hash.Add(piece);
  return hash.Digits();
}

TEST(ContentHashTest, PiecesAreToldApart) {
  EXPECT_EQ(DigitsOf({"ab", "c"}), DigitsOf({"ab", "c"}));
  EXPECT_NE(DigitsOf({"ab", "c"}), DigitsOf({"a", "bc"}));
  EXPECT_NE(DigitsOf({"a"}), DigitsOf({"a", ""}));
  EXPECT_EQ(DigitsOf({}).size(), 32U);
  const std::string large(1 << 20, 'x');
  std::string other = large;
  other[1 << 19] = 'y';
  EXPECT_NE(DigitsOf({large}), DigitsOf({other}));
}

}  // namespace
}  // namespace hps
