#include "l2_redis/stream_fence.h"

#include <gtest/gtest.h>

#include <vector>

#include "tier/durable_tier.h"

namespace hps {
namespace {

constexpr size_t kPartitions = 3;

std::vector<StreamPosition> At(uint16_t generation, uint64_t offset) {
  std::vector<StreamPosition> positions;
  for (uint32_t partition = 0; partition < kPartitions; ++partition)
    positions.push_back({.partition = partition, .generation = generation, .offset = offset});
  return positions;
}

class StreamFenceTest : public ::testing::Test {
 protected:
  bool Takes(Key key, uint64_t offset, uint64_t complete_to) const {
    return fence_.current()->Takes(key, VersionAt(1, offset), VersionAt(1, complete_to));
  }
  StreamPosition Behind(Key key, uint64_t offset) const {
    return {.partition = static_cast<uint32_t>(fence_.current()->PartitionOf(key)),
            .generation = 1,
            .offset = offset};
  }

  StreamFence fence_{At(1, 10), /*complete=*/true};
};

TEST_F(StreamFenceTest, TakesNoRowThatLevelThreeLacks) {
  EXPECT_TRUE(Takes(1, 9, 10));
  EXPECT_FALSE(Takes(1, 10, 11));
  const std::vector<StreamPosition> behind = {Behind(1, 11)};
  fence_.BeginChange(std::vector<Key>{1}, behind);
  EXPECT_FALSE(Takes(1, 10, 11)) << "level 3 does not show it yet";
  fence_.EndChange(behind, true);
  EXPECT_TRUE(Takes(1, 10, 11));
}

TEST_F(StreamFenceTest, TakesNoRowOfBeforeAChange) {
  EXPECT_FALSE(Takes(1, 5, 9)) << "what changed before the fence was made is not known";
  EXPECT_TRUE(Takes(1, 5, 10));
  const std::vector<StreamPosition> behind = {Behind(1, 14)};
  fence_.BeginChange(std::vector<Key>{1}, behind);
  EXPECT_FALSE(Takes(1, 5, 10)) << "the change begins: level 3 may show it soon";
  fence_.EndChange(behind, true);
  EXPECT_FALSE(Takes(1, 5, 13));
  EXPECT_TRUE(Takes(1, 5, 14)) << "the change was not of this key";
  EXPECT_TRUE(Takes(1, 13, 13));
  size_t other_keys_taken = 0;
  for (Key key = 2; key < 1000; ++key) other_keys_taken += Takes(key, 5, 10) ? 1 : 0;
  EXPECT_GT(other_keys_taken, 990u);
  fence_.ForgetRows();
  EXPECT_FALSE(Takes(1, 5, 10));
}

TEST_F(StreamFenceTest, AGenerationBeginsAnew) {
  fence_.BeginChange({}, At(2, 0));
  fence_.EndChange(At(2, 0), true);
  ASSERT_NE(fence_.current(), nullptr);
  EXPECT_EQ(fence_.current()->number(), 2);
  EXPECT_TRUE(fence_.current()->Takes(1, VersionAt(1, 500), VersionAt(2, 0)));
  EXPECT_FALSE(fence_.current()->Takes(1, VersionAt(1, 500), VersionAt(1, 501)));
  EXPECT_FALSE(fence_.current()->Takes(1, VersionAt(2, 0), VersionAt(2, 1)));
}

TEST_F(StreamFenceTest, AKeyInAWrongPartitionHasNoOrder) {
  StreamPosition other = Behind(1, 20);
  other.partition = (other.partition + 1) % kPartitions;
  fence_.BeginChange(std::vector<Key>{1}, std::vector{other});
  EXPECT_FALSE(Takes(1, 9, 20));
  EXPECT_FALSE(fence_.current()->IsOrdered(1));
  EXPECT_TRUE(fence_.current()->IsOrdered(2));
  fence_.EndChange(std::vector{other}, true);
  EXPECT_FALSE(Takes(1, 9, 20));
  fence_.BeginChange({}, At(2, 0));
  fence_.EndChange(At(2, 0), true);
  EXPECT_FALSE(fence_.current()->Takes(1, VersionAt(1, 9), VersionAt(2, 0)))
      << "nodes may have applied the changes of before in different order";
  EXPECT_TRUE(fence_.current()->Takes(2, VersionAt(1, 9), VersionAt(2, 0)));
}

// Catches: after a restart, a row of such a key was taken from Redis.
TEST_F(StreamFenceTest, AKeyWithoutAnOrderStaysOneInTheNextFence) {
  const std::vector<uint16_t> hashes = {UnorderedHash(1)};
  const StreamFence next(At(1, 10), /*complete=*/true, hashes);
  EXPECT_FALSE(next.current()->IsOrdered(1));
  EXPECT_FALSE(next.current()->Takes(1, VersionAt(1, 9), VersionAt(1, 10)));
  EXPECT_TRUE(next.current()->IsOrdered(2));
  EXPECT_TRUE(next.current()->Takes(2, VersionAt(1, 9), VersionAt(1, 10)));
}

TEST_F(StreamFenceTest, SharesNothingWithoutAnOrder) {
  fence_.EndChange(At(1, 12), /*complete=*/false);
  EXPECT_EQ(fence_.current(), nullptr) << "records were lost";
  EXPECT_EQ(StreamFence(At(1, 3), /*complete=*/false).current(), nullptr);
  EXPECT_EQ(StreamFence(At(kDirectGeneration, 3), true).current(), nullptr) << "direct changes";
  std::vector<StreamPosition> holes = At(1, 3);
  holes.erase(holes.begin());
  EXPECT_EQ(StreamFence(holes, true).current(), nullptr);
  std::vector<StreamPosition> grown = At(2, 3);
  grown[0].generation = 1;
  EXPECT_EQ(StreamFence(grown, true).current(), nullptr);
}

TEST_F(StreamFenceTest, WithoutAStreamOnlyImportedRows) {
  const StreamFence fence({}, true);
  ASSERT_NE(fence.current(), nullptr);
  EXPECT_TRUE(fence.current()->Takes(1, 0, 0));
  EXPECT_FALSE(fence.current()->Takes(1, 1, 1));
}

}  // namespace
}  // namespace hps
