#include "hps/table_spec.h"

#include <gtest/gtest.h>

#include <string>

namespace hps {
namespace {

TEST(TableSpecTest, AcceptsTheLimits) {
  const std::string longest(kNameBytesMax, 'x');
  EXPECT_TRUE(ValidateTableName(longest + "/" + longest).ok());
  EXPECT_TRUE(ValidateTableName("m-1/T_2").ok());
  EXPECT_TRUE(ValidateTableSpec({.name = "m/t", .dim = kRowBytesMax / 4}).ok());
  EXPECT_TRUE(
      ValidateTableSpec({.name = "m/t", .dim = kRowBytesMax / 2, .dtype = Dtype::kFloat16}).ok());
}

TEST(TableSpecTest, RefusesIllegalNames) {
  for (const std::string& name :
       {std::string(), std::string("m"), std::string("/t"), std::string("m/"), std::string("../x"),
        std::string("m/../x"), std::string("m/t/u"), std::string("m/t\n"), std::string("m t/x"),
        std::string(kNameBytesMax + 1, 'x') + "/t", "m/" + std::string(kNameBytesMax + 1, 'x')}) {
    EXPECT_EQ(ValidateTableName(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(TableSpecTest, RefusesIllegalShapes) {
  EXPECT_EQ(ValidateTableSpec({.name = "m/t", .dim = 0}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateTableSpec({.name = "m/t", .dim = kRowBytesMax / 4 + 1}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateTableSpec({.name = "m/t", .dim = UINT32_MAX}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateTableSpec({.name = "m/t", .dim = 2, .default_row = {std::byte{1}}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateTableSpec({.name = "m/t", .dim = 2, .dtype = Dtype{9}}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
