#include "types/names.h"

#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

TEST(NamesTest, FindsTheNearest) {
  const std::vector<std::string> names = {"dlrm/user", "dlrm/item", "wdl/user"};
  EXPECT_EQ(NearestName("dlrm/usr", names), "dlrm/user");
  EXPECT_EQ(NearestName("dlrm/items", names), "dlrm/item");
  EXPECT_EQ(NearestNameHint("dlrm/itm", names), "; did you mean 'dlrm/item'?");
}

TEST(NamesTest, SaysNothingWhenNothingIsNear) {
  const std::vector<std::string> names = {"completely_different"};
  EXPECT_EQ(NearestName("x", names), "");
  EXPECT_EQ(NearestNameHint("x", {}), "");
}

// Catches a comparison with every character of a hostile name: these would take minutes.
TEST(NamesTest, LongNamesTakeNoLonger) {
  const std::vector<std::string> names(1000, std::string(240, 'x'));
  EXPECT_EQ(NearestName(std::string(size_t{1} << 20, 'x'), names), "");
}

}  // namespace
}  // namespace hps
