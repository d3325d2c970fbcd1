#include "train/set_batch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace hps {
namespace {

const std::vector<std::string>& Tables() {
  static const std::vector<std::string> tables = {"goods", "people"};
  return tables;
}

const std::vector<SetFeature>& Features() {
  static const std::vector<SetFeature> features = {
      {.name = "item", .table = 0},
      {.name = "user", .table = 1, .pooling = Pooling::kMean},
      {.name = "history", .table = 0, .pooling = Pooling::kNone}};
  return features;
}

absl::Status Split(const SetBatch& batch, std::vector<BagBatch>& batches) {
  return SplitBatch(batch, Features(), Tables(), batches);
}

TEST(SplitBatch, GivesEachFeatureItsKeysOffsetsAndWeights) {
  const std::vector<Key> keys = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> offsets = {0, 0, 2, 3, 4, 6};
  const std::vector<int64_t> bag_counts = {2, 2, 1};
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> is_weighted = {1, 0, 0};
  std::vector<BagBatch> batches;
  ASSERT_TRUE(Split({.keys = keys,
                     .offsets = offsets,
                     .weights = weights,
                     .bag_counts = bag_counts,
                     .is_weighted = is_weighted},
                    batches)
                  .ok());
  ASSERT_EQ(batches.size(), 3U);
  const auto expect = [&](size_t i, const std::vector<Key>& own,
                          const std::vector<int64_t>& own_offsets) {
    EXPECT_EQ(std::vector(batches[i].keys.begin(), batches[i].keys.end()), own);
    EXPECT_EQ(std::vector(batches[i].offsets.begin(), batches[i].offsets.end()), own_offsets);
    EXPECT_EQ(batches[i].pooling, Features()[i].pooling);
  };
  expect(0, {1, 2}, {0, 0, 2});
  expect(1, {3, 4}, {2, 3, 4});
  expect(2, {5, 6}, {4, 6});
  EXPECT_EQ(batches[0].weights.data(), weights.data());
  EXPECT_TRUE(batches[1].weights.empty());
  EXPECT_TRUE(batches[2].weights.empty());
}

TEST(SplitBatch, WithoutOffsetsEveryKeyIsABag) {
  const std::vector<Key> keys = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> bag_counts = {3, 1, 2};
  std::vector<BagBatch> batches;
  ASSERT_TRUE(Split({.keys = keys, .bag_counts = bag_counts}, batches).ok());
  EXPECT_EQ(batches[1].keys.data(), keys.data() + 3);
  EXPECT_EQ(batches[1].keys.size(), 1U);
  EXPECT_EQ(batches[2].output_rows(), 2U);
  const std::vector<int64_t> none(3);
  ASSERT_TRUE(Split({.bag_counts = none}, batches).ok());
  EXPECT_EQ(batches[2].output_rows(), 0U);
}

TEST(SplitBatch, RefusesWhatDoesNotFit) {
  const std::vector<Key> keys = {1, 2, 3, 4};
  const std::vector<int64_t> bag_counts = {1, 1, 1};
  const std::vector<float> weights = {1, 2, 3, 4};
  std::vector<BagBatch> batches;
  const auto refused = [&](const SetBatch& batch) {
    const absl::Status status = Split(batch, batches);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refused({.keys = keys, .bag_counts = bag_counts}),
            "keys: 4 keys for 3 bags of one key each");
  EXPECT_EQ(refused({.keys = keys, .bag_counts = std::span(bag_counts).first(2)}),
            "keys: bags of 2 features, not 3");
  const std::vector<int64_t> negative = {5, -3, 2};
  EXPECT_EQ(refused({.keys = keys, .bag_counts = negative}),
            "keys: a feature has -3 bags, not 0 to 2^32 - 2");
  const auto with = [&](const std::vector<int64_t>& offsets) {
    return refused({.keys = keys, .offsets = offsets, .bag_counts = bag_counts});
  };
  EXPECT_EQ(with({0, 1, 4}), "keys: 3 offsets for 3 bags");
  const std::string ascend = "offsets must ascend from 0 to the number of keys, 4, not from ";
  EXPECT_EQ(with({1, 1, 2, 4}), "feature 'item' of table 'goods': " + ascend + "1 to 1");
  EXPECT_EQ(with({0, 1, 5, 4}), "feature 'user' of table 'people': " + ascend + "1 to 5");
  EXPECT_EQ(with({0, 2, 1, 4}), "feature 'user' of table 'people': " + ascend + "2 to 1");
  EXPECT_EQ(with({0, 1, 2, 3}), "feature 'history' of table 'goods': " + ascend + "2 to 3");
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(with({0, 1, least, 4}),
            "feature 'user' of table 'people': " + ascend + "1 to " + std::to_string(least));
  const std::vector<int64_t> two = {2, 1, 1};
  const std::vector<int64_t> descending = {0, 3, 2, 3, 4};
  EXPECT_EQ(refused({.keys = keys, .offsets = descending, .bag_counts = two}),
            "feature 'item' of table 'goods': keys: offsets must ascend from 0 to the number of "
            "keys");
  const std::vector<int64_t> offsets = {0, 1, 2, 4};
  EXPECT_EQ(refused({.keys = keys,
                     .offsets = offsets,
                     .weights = std::span(weights).first(3),
                     .bag_counts = bag_counts}),
            "keys: 3 weights for 4 keys");
  EXPECT_EQ(
      refused({.keys = keys, .offsets = offsets, .weights = weights, .bag_counts = bag_counts}),
      "feature 'user' of table 'people': keys: weights need the pooling sum");
}

}  // namespace
}  // namespace hps
