#include "train_cpu/row_sums.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "testing/contracts/embedding_shard_contract.h"
#include "train_cpu/host_shard.h"

namespace hps {
namespace {

constexpr size_t kWidth = 2;

class RowSumsTest : public ::testing::Test {
 protected:
  void Add(const std::vector<Key>& keys, float gradient) {
    std::vector<float> values(keys.size() * kWidth);
    ASSERT_TRUE(ForwardOne(*shard_, {.keys = keys}, step_.get(), values).ok());
    values.assign(values.size(), gradient);
    const GradientPiece piece{keys.size(), values.data(), kWidth};
    sums_.Add(*step_, {&piece, 1});
  }
  void Apply() {
    const GradientPiece gradients = sums_.gradients();
    ASSERT_TRUE(shard_->Backward(sums_.Step(), {&gradients, 1}, {.learning_rate = 1}).ok());
    sums_.Clear();
  }
  // The first value of each row.
  std::vector<float> Rows() {
    std::vector<float> firsts;
    const ShardRows rows = *shard_->ReadRows(false);
    for (size_t i = 0; i < rows.keys.size(); ++i) firsts.push_back(rows.values[i * kWidth]);
    return firsts;
  }

  std::unique_ptr<EmbeddingShard> shard_ = *HostShard::Create({.name = "m/t", .dim = kWidth});
  std::unique_ptr<StepIndex> step_ = shard_->NewStep();
  RowSums sums_{kWidth};
};

TEST_F(RowSumsTest, AddsUpStepsAndUpdatesEachRowOnce) {
  EXPECT_FALSE(sums_.has_gradients());
  Add({1, 2, 1}, 1);
  Add({3, 1}, 10);
  EXPECT_TRUE(sums_.has_gradients());
  EXPECT_EQ(std::vector(sums_.sums().begin(), sums_.sums().end()),
            (std::vector<float>{12, 12, 1, 1, 10, 10}));
  EXPECT_EQ(Rows(), (std::vector<float>{0, 0, 0}));
  Apply();
  EXPECT_EQ(Rows(), (std::vector<float>{-12, -1, -10}));
  EXPECT_EQ(shard_->ReadRows(true)->update_counts, (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_FALSE(sums_.has_gradients());
  Add({2}, 5);
  Apply();
  EXPECT_EQ(Rows(), (std::vector<float>{-12, -6, -10}));
}

TEST_F(RowSumsTest, AreScaled) {
  Add({1, 2}, 4);
  sums_.Scale(0.25F);
  Add({2}, 1);
  EXPECT_EQ(std::vector(sums_.sums().begin(), sums_.sums().end()),
            (std::vector<float>{1, 1, 2, 2}));
}

// A row that was erased is not updated, unless it came back: then the new one is.
TEST_F(RowSumsTest, FollowsRowsThatWereErased) {
  Add({1, 2, 3}, 1);
  ASSERT_TRUE(shard_->EraseRows(std::vector<Key>{1, 2}).ok());
  Add({4, 1}, 10);
  Apply();
  EXPECT_EQ(shard_->ReadRows(false)->keys, (std::vector<Key>{1, 3, 4}));
  EXPECT_EQ(Rows(), (std::vector<float>{-11, -1, -10}));
}

TEST_F(RowSumsTest, AStepWithoutKeysHasGradients) {
  Add({}, 1);
  EXPECT_TRUE(sums_.has_gradients());
  Apply();
}

}  // namespace
}  // namespace hps
