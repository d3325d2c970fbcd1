// Nodes that share a table on a real server, each with a part in memory before it: no node answers
// another row than its own level 3 has, however far the other node is.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "l2_memory/memory_tier.h"
#include "l2_redis/test_redis.h"
#include "l2_redis/test_shared_nodes.h"
#include "testing/contracts/lossy_list.h"

namespace hps::shared_nodes {
namespace {

class SharedPartsTest : public ::testing::Test {
 protected:
  // A node whose memory has room for `rows`.
  std::unique_ptr<Node> NewNode(uint64_t rows) {
    const uint64_t bytes = MemoryTierBytesFor(rows, kRowBytes, {.huge_pages = false});
    return std::make_unique<Node>(
        redis_.Config(), "v1", /*writes_changes=*/true,
        [this, bytes](auto shared) {
          return std::make_unique<ListedTable>(
              *memory_->OpenTable(ContractSpec(kRowBytes), 1, bytes), std::move(shared));
        },
        [](LossyTable& table, ApplyEpoch epoch) {
          static_cast<ListedTable&>(table).CopyFrom(epoch);
        });
  }

  TestRedis redis_{{}};
  std::unique_ptr<LossyTier> memory_ = MakeMemoryTier({.huge_pages = false});
};

TEST_F(SharedPartsTest, MemoryTakesSharedRowsAndFollowsChanges) {
  const auto first = NewNode(kKeys);
  first->BeginStream();
  EXPECT_EQ(first->Promote(AllKeys()), kKeys);
  const auto second = NewNode(kKeys);
  second->BeginStream();
  EXPECT_EQ(second->Check(AllKeys()), kKeys) << "rows of the first";
  redis_.Ask(0, {"FLUSHALL"});
  EXPECT_EQ(second->Check(AllKeys()), kKeys) << "copied into memory";
  Stream stream;
  for (const Key key : AllKeys()) stream.Publish(key, /*is_delete=*/key >= 200);
  for (size_t partition = 0; partition < kPartitions; ++partition) {
    while (second->Apply(stream, partition, 7)) EXPECT_GT(second->Check(AllKeys()), 0u);
  }
  EXPECT_EQ(second->Check(AllKeys()), 200u) << "the deleted ones are in neither part";
  EXPECT_EQ(first->Check(AllKeys()), kKeys) << "it has not applied them";
}

TEST_F(SharedPartsTest, NodesAtDifferentSpeeds) {
  std::mt19937_64 random(20261126);
  std::vector<std::unique_ptr<Node>> nodes;
  for (const uint64_t rows : {kKeys / 10, kKeys}) nodes.push_back(NewNode(rows));
  for (const auto& node : nodes) node->BeginStream();
  Stream stream;
  size_t answers = 0;
  for (int step = 0; step < 3000; ++step) {
    Node& node = *nodes[random() % nodes.size()];
    std::vector<Key> keys;
    for (int i = 0; i < 20; ++i) keys.push_back(static_cast<Key>(random() % kKeys));
    switch (random() % 8) {
      case 0:
        for (const Key key : keys) stream.Publish(key, /*is_delete=*/random() % 10 == 0);
        break;
      case 1:
      case 2:  // the second node is slower
        if (&node == nodes[0].get() || random() % 4 == 0)
          node.Apply(stream, random() % kPartitions, 1 + random() % 30);
        break;
      case 3: {
        Node::Promotion late = node.Fetched(keys);
        node.Apply(stream, random() % kPartitions, 5);
        node.Insert(std::move(late));
        break;
      }
      case 4:
        if (random() % 20 == 0) redis_.Ask(0, {"FLUSHALL"});
        break;
      default:
        if (node.Check(keys) < keys.size()) node.Promote(keys);
        answers += node.Check(keys);
    }
  }
  EXPECT_GT(answers, 0u);
}

}  // namespace
}  // namespace hps::shared_nodes
