#include "inference/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

using ::testing::ElementsAre;

TEST(PoolingTest, SumsAndMeansOfBags) {
  const std::vector<float> rows = {1, 10, 2, 20, 4, 40, 8, 80};
  std::vector<float> to(6, -1.0F);
  const std::vector<int64_t> offsets = {0, 3, 3, 4};
  PoolRows({.rows = rows.data(), .dim = 2, .offsets = offsets}, RowPooling::kSum, 3, to.data());
  EXPECT_THAT(to, ElementsAre(7, 70, 0, 0, 8, 80));
  PoolRows({.rows = rows.data(), .dim = 2, .sample_keys = 2}, RowPooling::kMean, 2, to.data());
  EXPECT_THAT(to, ElementsAre(1.5F, 15, 6, 60, 8, 80));
}

TEST(PoolingTest, EmptyBagsNeedNoRows) {
  std::vector<float> to(4, -1.0F);
  PoolRows({.dim = 2, .sample_keys = 0}, RowPooling::kMean, 2, to.data());
  EXPECT_THAT(to, ElementsAre(0, 0, 0, 0));
}

TEST(PoolingTest, EveryWidth) {
  for (const uint32_t dim : {1U, 3U, 16U, 31U, 32U, 33U}) {
    std::vector<float> rows;
    for (size_t i = 0; i < 5 * size_t{dim}; ++i) rows.push_back(static_cast<float>(i));
    std::vector<float> to(dim);
    PoolRows({.rows = rows.data(), .dim = dim, .sample_keys = 5}, RowPooling::kSum, 1, to.data());
    for (size_t j = 0; j < dim; ++j) EXPECT_EQ(to[j], 5 * static_cast<float>(j) + 10.0F * dim);
  }
}

}  // namespace
}  // namespace hps
