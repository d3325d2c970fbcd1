#include "update/stream_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/unix_time.h"
#include "testing/await.h"
#include "testing/fakes/fake_update_stream.h"
#include "testing/test_directory.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using World = UpdateWorld;

class StreamReaderTest : public ::testing::Test {
 protected:
  StreamReaderTest() {
    world_.Load();
    updates_ = *UpdateService::Create({.registry = &world_.registry,
                                       .store = &world_.store,
                                       .refresh_interval = std::chrono::milliseconds(5)});
  }

  void Start(const std::vector<std::string>& patterns = {"*"}) {
    reader_ = *StreamReader::Start(stream_.NewSource({.node = node_}),
                                   *ParkedMessages::Open(directory_.path(), 1 << 20),
                                   {.updates = updates_.get(),
                                    .store = &world_.store,
                                    .tables = patterns,
                                    .ready_wait_max = ready_wait_max_,
                                    .look_every = std::chrono::milliseconds(5)});
  }
  void Append(Key key, float value, uint32_t partition = 0) {
    const TableSpec spec = {.name = "m/t", .dim = World::kDim};
    const std::vector<std::byte> rows = World::Rows(1, value);
    std::vector<std::byte> payload(EncodedUpdateBytes(spec, UpdateKind::kUpsert, 1));
    EncodeUpdate(spec, {.publish_time_us = UnixMicroseconds(), .keys = {&key, 1}, .rows = rows},
                 payload);
    stream_.Append("m/t", partition, {.payload = payload});
  }
  testing::AssertionResult AwaitRow(Key key, float value) {
    return AwaitCondition([&] { return world_.InL3(key) == value; });
  }
  // Level 3 shows a change before the change has ended, and until then no level takes its keys.
  testing::AssertionResult AwaitPromotion(Key key, float value) {
    return AwaitCondition([&] {
      world_.Promote({key});
      return world_.InL2(key) == value && world_.InL1(key) == value;
    });
  }

  TestDirectory directory_;
  World world_;
  FakeUpdateStream stream_;
  std::string node_ = "node";
  Duration ready_wait_max_ = std::chrono::seconds(30);
  std::unique_ptr<UpdateService> updates_;
  std::unique_ptr<StreamReader> reader_;
};

TEST_F(StreamReaderTest, AppliesTheStreamToAllLevels) {
  stream_.MakeTopic("m/t", 2);
  Append(1, 10);
  Append(2, 20, 1);
  Start();
  reader_->AwaitReady();
  ASSERT_TRUE(AwaitRow(1, 10));
  ASSERT_TRUE(AwaitRow(2, 20));
  ASSERT_TRUE(AwaitPromotion(1, 10));
  ASSERT_TRUE(AwaitPromotion(2, 20));
  Append(1, 11);
  ASSERT_TRUE(AwaitRow(1, 11));
  ASSERT_TRUE(AwaitCondition([&] { return world_.InL2(1) == 11 && world_.InL1(1) == 11; }));
  ASSERT_TRUE(AwaitCondition([&] {
    const StreamStatistics statistics = reader_->Statistics();
    return statistics.partitions.size() == 2 && statistics.partitions[0].position == 2 &&
           statistics.partitions[0].lag_records == 0;
  }));
  EXPECT_TRUE(reader_->Statistics().enabled);
  EXPECT_FALSE(reader_->Statistics().recovery_unverified);
}

TEST_F(StreamReaderTest, GoesOnWhereItWas) {
  stream_.MakeTopic("m/t", 1);
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  reader_.reset();
  world_.live().l3().Write({.deletes = std::vector<Key>{1}}).IgnoreError();
  Append(2, 20);
  Start();
  ASSERT_TRUE(AwaitRow(2, 20));
  EXPECT_EQ(world_.InL3(1), World::kAbsent) << "applied once";
}

TEST_F(StreamReaderTest, AnImportBeginsTheStreamAnew) {
  stream_.MakeTopic("m/t", 1);
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  world_.store.Replace();
  world_.Load();
  ASSERT_TRUE(AwaitRow(1, 10));
}

TEST_F(StreamReaderTest, ReadsNoTableThatTakesDirectChangesOrDoesNotMatch) {
  stream_.MakeTopic("m/t", 1);
  ASSERT_TRUE(
      updates_
          ->Apply("m/t",
                  {.dim = World::kDim, .keys = std::vector<Key>{5}, .rows = World::Rows(1, 5)},
                  World::Soon())
          .ok());
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return !reader_->Statistics().recovering; }));
  world_.store.Replace();
  world_.Load();
  ASSERT_TRUE(AwaitRow(1, 10));
  reader_.reset();
  Append(1, 11);
  Start({"n/*", "m/t?"});
  reader_->AwaitReady();
  EXPECT_TRUE(reader_->Statistics().partitions.empty());
  EXPECT_EQ(world_.InL3(1), 10);
}

TEST_F(StreamReaderTest, PausesWhileTheDiskIsFull) {
  stream_.MakeTopic("m/t", 1);
  Start();
  Append(1, 10);
  ASSERT_TRUE(AwaitRow(1, 10));
  world_.store.faults.Plan(TierOperation::kWrite, {.status = absl::ResourceExhaustedError("full")});
  Append(1, 20);
  ASSERT_TRUE(AwaitCondition([&] { return !reader_->Statistics().paused.empty(); }));
  EXPECT_THAT(reader_->Statistics().paused,
              ElementsAre(std::make_pair(std::string("m/t"), std::string("disk_full"))));
  world_.store.faults.Clear();
  ASSERT_TRUE(AwaitRow(1, 20));
  ASSERT_TRUE(AwaitCondition([&] { return reader_->Statistics().paused.empty(); }));
  Append(1, 30);
  ASSERT_TRUE(AwaitRow(1, 30));
}

// The store has lost its last changes; the stream was told that they had been applied.
TEST_F(StreamReaderTest, IsReadyWhenWhatItHadIsAppliedAgain) {
  stream_.MakeTopic("m/t", 1);
  for (int i = 1; i <= 3; ++i) Append(i, 10);
  Start();
  ASSERT_TRUE(AwaitRow(3, 10));
  reader_.reset();
  const StreamPosition earlier = {.offset = 1};
  ASSERT_TRUE(world_.live()
                  .l3()
                  .Write({.deletes = std::vector<Key>{2, 3}, .positions = {&earlier, 1}})
                  .ok());
  Start();
  reader_->AwaitReady();
  EXPECT_EQ(world_.InL3(3), 10);
  EXPECT_EQ(reader_->Statistics().recovery_records, 2u);
  EXPECT_FALSE(reader_->Statistics().recovery_unverified);
}

TEST_F(StreamReaderTest, IsReadyWithoutAStreamAfterALimit) {
  stream_.MakeTopic("m/t", 1);
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  reader_.reset();
  stream_.SetDown(true);
  ready_wait_max_ = std::chrono::milliseconds(20);
  Start();
  reader_->AwaitReady();
  EXPECT_TRUE(reader_->Statistics().recovery_unverified);
  ASSERT_TRUE(AwaitCondition([&] { return !reader_->Statistics().problem.empty(); }));
  ready_wait_max_ = std::chrono::hours(1);
  reader_.reset();
  Start();
  reader_->StopWaiting();
  reader_->AwaitReady();
}

// Catches: no offset of the node in the stream counts as "nothing was lost".
TEST_F(StreamReaderTest, NothingIsVerifiedByAStreamThatDoesNotKnowTheNode) {
  stream_.MakeTopic("m/t", 1);
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  EXPECT_FALSE(reader_->Statistics().recovery_unverified) << "a new store has lost nothing";
  reader_.reset();
  node_ = "another";
  ready_wait_max_ = std::chrono::hours(1);
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return !reader_->Statistics().recovering; }));
  EXPECT_TRUE(reader_->Statistics().recovery_unverified);
  reader_.reset();
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return !reader_->Statistics().recovering; }));
  EXPECT_FALSE(reader_->Statistics().recovery_unverified) << "now it does";
}

// Catches: a table whose topic was deleted delays each start by the limit.
TEST_F(StreamReaderTest, AMissingTopicDelaysNoStart) {
  stream_.MakeTopic("m/t", 1);
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  reader_.reset();
  stream_.DropTopic("m/t");
  ready_wait_max_ = std::chrono::hours(1);
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return !reader_->Statistics().recovering; }));
  EXPECT_TRUE(reader_->Statistics().recovery_unverified);
}

TEST_F(StreamReaderTest, SaysWhatRetentionHadDeletedBeforeTheFirstRead) {
  stream_.MakeTopic("m/t", 1);
  for (int i = 0; i < 5; ++i) Append(1, static_cast<float>(i));
  stream_.Expire("m/t", 0, 3);
  Start();
  ASSERT_TRUE(AwaitRow(1, 4));
  ASSERT_TRUE(AwaitCondition([&] { return reader_->Statistics().records_lost == 3; }));
  EXPECT_THAT(reader_->Statistics().stale_tables, ElementsAre("m/t"));
}

TEST_F(StreamReaderTest, SaysWhatRetentionHasDeleted) {
  stream_.MakeTopic("m/t", 1);
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  reader_.reset();
  for (int i = 0; i < 5; ++i) Append(2, static_cast<float>(i));
  stream_.Expire("m/t", 0, 4);
  Start();
  ASSERT_TRUE(AwaitRow(2, 4));
  ASSERT_TRUE(AwaitCondition([&] { return reader_->Statistics().records_lost == 3; }));
  EXPECT_THAT(reader_->Statistics().stale_tables, ElementsAre("m/t"));
}

TEST_F(StreamReaderTest, CountsWhatItSetsAside) {
  stream_.MakeTopic("m/t", 1);
  stream_.Append("m/t", 0, {.payload = std::vector<std::byte>(20)});
  Append(1, 10);
  Start();
  ASSERT_TRUE(AwaitRow(1, 10));
  uint64_t parked = 0;
  for (const auto& [reason, count] : reader_->Statistics().parked) parked += count;
  EXPECT_EQ(parked, 1u);
}

}  // namespace
}  // namespace hps
