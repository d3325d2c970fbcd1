#include "train/embedding_shard.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "hps/table_spec.h"

namespace hps {
namespace {

ShardOptions Good() { return {.name = "m/t", .dim = 4}; }

TEST(ShardOptions, DefaultsAreGood) { EXPECT_TRUE(ValidateShardOptions(Good()).ok()); }

TEST(ShardOptions, ElementsMayHave16Bits) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    ShardOptions options = Good();
    options.dtype = dtype;
    EXPECT_TRUE(ValidateShardOptions(options).ok());
  }
}

TEST(ShardOptions, RefusesWhatNoTableCanHave) {
  std::vector<ShardOptions> bad(7, Good());
  bad[0].name.clear();
  bad[1].dim = 0;
  bad[2].dim = static_cast<uint32_t>(kDimMax / sizeof(float)) + 1;
  bad[3].admit_after = 0;
  bad[4].initializer.low = std::numeric_limits<float>::quiet_NaN();
  bad[5].dtype = static_cast<Dtype>(0);
  bad[6].dtype = static_cast<Dtype>(4);
  for (const ShardOptions& options : bad)
    EXPECT_EQ(ValidateShardOptions(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST(BagBatch, OutputsABagOrAKey) {
  const std::vector<Key> keys(5);
  const std::vector<int64_t> offsets = {0, 2, 5};
  EXPECT_EQ((BagBatch{.keys = keys}).output_rows(), 5U);
  EXPECT_EQ((BagBatch{.keys = keys, .offsets = offsets}).output_rows(), 2U);
  EXPECT_EQ((BagBatch{.keys = keys, .offsets = offsets, .pooling = Pooling::kNone}).output_rows(),
            5U);
}

}  // namespace
}  // namespace hps
