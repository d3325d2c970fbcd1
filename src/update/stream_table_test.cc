#include "update/stream_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "testing/test_directory.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using World = UpdateWorld;

class StreamTableTest : public ::testing::Test {
 protected:
  StreamTableTest() {
    world_.Load();
    parked_ = *ParkedMessages::Open(directory_.path(), 1 << 20);
    table_ = std::make_unique<StreamTable>(Info(), applier_, *parked_);
  }
  TableInfo Info() { return (*world_.store.Tables())[0]; }

  static std::vector<std::byte> Message(const std::vector<Key>& keys, float value,
                                        UpdateKind kind = UpdateKind::kUpsert) {
    const TableSpec spec = {.name = "m/t", .dim = World::kDim};
    const std::vector<std::byte> rows =
        kind == UpdateKind::kDelete ? std::vector<std::byte>() : World::Rows(keys.size(), value);
    std::vector<std::byte> payload(EncodedUpdateBytes(spec, kind, keys.size()));
    EncodeUpdate(spec, {.kind = kind, .publish_time_us = 1, .keys = keys, .rows = rows}, payload);
    return payload;
  }
  void Add(uint64_t offset, std::vector<std::byte> payload, uint32_t partition = 0,
           uint32_t partition_count = 0) {
    auto owned = std::make_unique<std::vector<std::byte>>(std::move(payload));
    UpdateRecord record;
    record.table = "m/t";
    record.position = {.partition = partition, .generation = 1, .offset = offset};
    record.time_ms = static_cast<int64_t>(1000 + offset);
    record.partition_count = partition_count;
    record.payload = *owned;
    record.owner = UpdateRecord::Owner(owned.release(), [](void* bytes) {
      const std::unique_ptr<std::vector<std::byte>> freed(
          static_cast<std::vector<std::byte>*>(bytes));
    });
    table_->Add(std::move(record));
  }
  absl::Status Apply() { return table_->Apply(World::Soon()); }

  TestDirectory directory_;
  World world_;
  TableApplier applier_{"m/t", world_.registry, world_.store};
  std::unique_ptr<ParkedMessages> parked_;
  std::unique_ptr<StreamTable> table_;
};

TEST_F(StreamTableTest, MergesRecordsAndKeepsTheirOrder) {
  Add(0, Message({1, 2}, 10));
  Add(1, Message({2, 3}, 20));
  Add(7, Message({4}, 30), 1);
  Add(2, Message({1}, 0, UpdateKind::kDelete));
  Add(3, Message({1, 5}, 40));
  ASSERT_TRUE(Apply().ok());
  EXPECT_TRUE(table_->is_idle());
  EXPECT_EQ(applier_.counts().changes, 3) << "upserts, a deletion, upserts";
  EXPECT_EQ(world_.InL3(1), 40);
  EXPECT_EQ(world_.InL3(2), 20);
  EXPECT_EQ(world_.InL3(4), 30);
  const auto positions = *world_.live().l3().Positions();
  ASSERT_EQ(positions.size(), 2u);
  EXPECT_EQ(positions[0], (StreamPosition{.partition = 0, .offset = 4}));
  EXPECT_EQ(positions[1], (StreamPosition{.partition = 1, .offset = 8}));
  EXPECT_EQ(table_->positions().at(1).offset, 8u);
  EXPECT_EQ(table_->applied_time_ms(0), 1003);
}

TEST_F(StreamTableTest, SetsAsideWhatCannotBeAppliedAndGoesOn) {
  Add(0, Message({1}, 10));
  std::vector<std::byte> damaged = Message({1}, 11);
  damaged.back() ^= std::byte{1};
  Add(1, damaged);
  Add(2, {});
  Add(3, Message({2}, 12));
  ASSERT_TRUE(Apply().ok());
  EXPECT_EQ(world_.InL3(1), 10);
  EXPECT_EQ(world_.InL3(2), 12);
  EXPECT_EQ(table_->positions().at(0).offset, 4u);
  const auto parked = *ReadParkedMessages(directory_.path());
  ASSERT_EQ(parked.size(), 2u);
  EXPECT_EQ(parked[0].reason, ParkReason::kChecksum);
  EXPECT_EQ(parked[0].position.offset, 1u);
  EXPECT_EQ(parked[0].payload, damaged);
  EXPECT_EQ(parked[1].reason, ParkReason::kUnknownFormat);
}

// Nodes that share rows compare positions of a key's own partition.
TEST_F(StreamTableTest, SetsAsideKeysOfOtherPartitions) {
  TableInfo info = Info();
  info.positions = {{.partition = 0, .generation = 1}, {.partition = 1, .generation = 1}};
  std::array<std::vector<Key>, 2> keys;  // by partition
  for (Key key = 0; key < 20; ++key) keys[UpdatePartition(key, 2)].push_back(key);
  for (const char* import_id : {"", "v1"}) {
    info.import_id = import_id;
    table_ = std::make_unique<StreamTable>(info, applier_, *parked_);
    Add(0, Message(keys[0], 10));
    Add(0, Message(keys[1], 10), 1);
    Add(1, Message({keys[1][0], keys[0][0]}, 20), 1, 2);
    Add(2, Message({keys[1][1]}, 0, UpdateKind::kDelete), 0, 2);
    ASSERT_TRUE(Apply().ok());
    const bool is_shared = info.import_id == "v1";
    EXPECT_EQ(world_.InL3(keys[0][0]), is_shared ? 10 : 20);
    EXPECT_EQ(world_.InL3(keys[1][0]), is_shared ? 10 : 20);
    EXPECT_EQ(world_.InL3(keys[1][1]), is_shared ? 10 : World::kAbsent);
    EXPECT_EQ(table_->positions().at(0).offset, 3u);
    EXPECT_EQ(table_->positions().at(1).offset, 2u);
    const auto parked = *ReadParkedMessages(directory_.path());
    ASSERT_EQ(parked.size(), is_shared ? 2u : 0u);
    if (!is_shared) continue;
    EXPECT_EQ(parked[0].reason, ParkReason::kWrongPartition);
    EXPECT_THAT(parked[0].detail, testing::HasSubstr("belongs into partition 0 of 2"));
  }
}

// Catches: messages of before a topic grew, which a new node lost.
TEST_F(StreamTableTest, AppliesKeysOfOtherPartitionsIfTheTopicMayHaveGrown) {
  TableInfo info = Info();
  info.import_id = "v1";
  info.positions = {{.partition = 0, .generation = 1}, {.partition = 1, .generation = 1}};
  std::array<std::vector<Key>, 2> keys;  // by partition
  for (Key key = 0; key < 20; ++key) keys[UpdatePartition(key, 2)].push_back(key);
  uint64_t offset = 0;
  for (const uint32_t partition_count : {0, 1}) {
    table_ = std::make_unique<StreamTable>(info, applier_, *parked_);
    const uint64_t changes = applier_.counts().changes;
    const float value = 10 + static_cast<float>(partition_count);
    Add(offset, Message({keys[1][0]}, value), 1, partition_count);
    Add(offset, Message({keys[1][1]}, value), 0, partition_count);
    Add(offset + 1, Message({keys[0][0]}, value), 0, partition_count);
    Add(offset + 1, Message({keys[1][2]}, value), 1, partition_count);
    ASSERT_TRUE(Apply().ok());
    for (const Key key : {keys[1][0], keys[1][1], keys[0][0], keys[1][2]})
      EXPECT_EQ(world_.InL3(key), value);
    EXPECT_EQ(applier_.counts().changes - changes, 3)
        << "the shared level sees such a change without the positions of other partitions";
    EXPECT_THAT(world_.live().l3().UnorderedHashes(),
                testing::ElementsAre(UnorderedHash(keys[1][1])));
    offset += 2;
  }
  EXPECT_TRUE(ReadParkedMessages(directory_.path())->empty());
}

TEST_F(StreamTableTest, RepeatsWhatLevelThreeRefused) {
  world_.store.faults.Plan(TierOperation::kWrite, {.times = 2});
  Add(0, Message({1}, 10));
  EXPECT_FALSE(Apply().ok());
  Add(1, Message({1}, 20));
  EXPECT_FALSE(Apply().ok());
  EXPECT_FALSE(table_->is_idle());
  ASSERT_TRUE(Apply().ok());
  EXPECT_EQ(world_.InL3(1), 20);
  EXPECT_EQ(table_->positions().at(0).offset, 2u);
}

// An import in between: the positions that the records imply are not those of the new table.
TEST_F(StreamTableTest, RefusesAnotherIncarnation) {
  Add(0, Message({1}, 10));
  world_.store.Replace();
  world_.Load();
  EXPECT_EQ(Apply().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(world_.live().l3().Positions()->empty());
}

TEST_F(StreamTableTest, AnEventSetsThePositions) {
  table_->Add({.kind = UpdateEvent::Kind::kRetentionPassed,
               .table = "m/t",
               .positions = {{.partition = 0, .offset = 50}, {.partition = 1, .offset = 60}},
               .records_lost = 7});
  Add(50, Message({1}, 10));
  ASSERT_TRUE(Apply().ok());
  EXPECT_EQ(table_->positions().at(0).offset, 51u);
  EXPECT_EQ(table_->positions().at(1).offset, 60u);
  EXPECT_EQ(table_->records_lost(), 7u);
  EXPECT_EQ(Info().update_records_lost, 7u);
}

}  // namespace
}  // namespace hps
