#include "inference/tensor_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace hps {
namespace {

template <typename T>
bool HasNanIn(Datatype datatype, const std::vector<T>& values) {
  return HasNan(datatype, std::as_bytes(std::span(values)));
}

TEST(FitsInt32Test, KnowsTheEnds) {
  const auto fits = [](const std::vector<int64_t>& values) {
    return FitsInt32(std::as_bytes(std::span(values)));
  };
  EXPECT_TRUE(fits({}));
  EXPECT_TRUE(fits({INT32_MIN, -1, INT32_MAX}));
  EXPECT_FALSE(fits({0, int64_t{INT32_MAX} + 1}));
  EXPECT_FALSE(fits({int64_t{INT32_MIN} - 1}));
}

TEST(TensorChecksTest, FindsNanInEveryFloatingPointType) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(HasNanIn<float>(Datatype::kFp32, {0, -infinity, infinity}));
  EXPECT_TRUE(HasNanIn<float>(Datatype::kFp32, {0, 1, std::nanf("")}));
  EXPECT_TRUE(HasNanIn<double>(Datatype::kFp64, {std::nan("")}));
  // Infinity, NaN, and NaN with a sign.
  EXPECT_FALSE(HasNanIn<uint16_t>(Datatype::kFp16, {0x7c00, 0xfc00, 0x3c00}));
  EXPECT_TRUE(HasNanIn<uint16_t>(Datatype::kFp16, {0x7c01}));
  EXPECT_FALSE(HasNanIn<uint16_t>(Datatype::kBf16, {0x7f80, 0xff80}));
  EXPECT_TRUE(HasNanIn<uint16_t>(Datatype::kBf16, {0xff81}));
  EXPECT_FALSE(HasNanIn<float>(Datatype::kInt32, {std::nanf("")}));
}

TEST(TensorChecksTest, ShapesFitTheirBytes) {
  const std::vector<float> values(6);
  InputTensor input{
      .name = "x", .datatype = Datatype::kFp32, .bytes = std::as_bytes(std::span(values))};
  input.shape = {.dims = {2, 3}, .dim_count = 2};
  EXPECT_EQ(CheckedElements(input, 4).value(), 6U);
  EXPECT_FALSE(CheckFlat(input).ok());
  input.shape.dims = {2, 4};
  EXPECT_FALSE(CheckedElements(input, 4).ok());
  input.shape.dims = {int64_t{1} << 62, int64_t{1} << 62};
  EXPECT_FALSE(CheckedElements(input, 4).ok());
  EXPECT_EQ(ShapeText({.dims = {2, 3}, .dim_count = 2}), "[2, 3]");
}

}  // namespace
}  // namespace hps
