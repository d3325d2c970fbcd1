#include "update/stream_recovery.h"

#include <gtest/gtest.h>

#include "testing/fakes/fake_update_stream.h"
#include "testing/test_directory.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using World = UpdateWorld;

// The store has applied the stream up to offset 2, and told the stream 5.
class StreamRecoveryTest : public ::testing::Test {
 protected:
  StreamRecoveryTest() {
    TableInfo info = (*world_.store.Tables())[0];
    info.positions = {At(2)};
    table_ = std::make_unique<StreamTable>(info, applier_, *parked_);
    stream_.MakeTopic("m/t", 1);
    EXPECT_TRUE(source_->Subscribe({.table = "m/t", .positions = info.positions}).ok());
  }
  static StreamPosition At(uint64_t offset) { return {.generation = 1, .offset = offset}; }
  void Tell(const StreamPosition& position) {
    ASSERT_TRUE(source_->CommitHint("m/t", {&position, 1}).ok());
  }
  void Reach(uint64_t offset) {
    table_->Add(UpdateEvent{.table = "m/t", .positions = {At(offset)}, .message = ""});
    ASSERT_TRUE(table_->Apply(World::Soon()).ok());
  }

  TestDirectory directory_;
  World world_;
  TableApplier applier_{"m/t", world_.registry, world_.store};
  std::unique_ptr<ParkedMessages> parked_ = *ParkedMessages::Open(directory_.path(), 1 << 20);
  FakeUpdateStream stream_;
  std::unique_ptr<UpdateSource> source_ = stream_.NewSource({});
  std::unique_ptr<StreamTable> table_;
  StreamRecovery recovery_{*source_, std::chrono::hours(1)};
};

TEST_F(StreamRecoveryTest, IsDoneWhenTheTableIsWhereTheStreamWasTold) {
  Tell(At(5));
  recovery_.Add(*table_);
  recovery_.Follow();
  EXPECT_FALSE(recovery_.is_done());
  EXPECT_EQ(recovery_.result().records, 3u);
  Reach(4);
  recovery_.Follow();
  EXPECT_FALSE(recovery_.is_done());
  Reach(5);
  recovery_.Follow();
  EXPECT_TRUE(recovery_.is_done());
  EXPECT_FALSE(recovery_.result().is_unverified);
  EXPECT_EQ(recovery_.result().records, 3u);
}

TEST_F(StreamRecoveryTest, NothingWasLost) {
  for (const StreamPosition& told : {At(2), StreamPosition{.generation = 2, .offset = 9}}) {
    Tell(told);
    StreamRecovery recovery(*source_, std::chrono::hours(1));
    recovery.Add(*table_);
    recovery.Follow();
    EXPECT_TRUE(recovery.is_done());
    EXPECT_FALSE(recovery.result().is_unverified);
    EXPECT_EQ(recovery.result().records, 0u);
  }
}

TEST_F(StreamRecoveryTest, WithoutTablesThereIsNothingToRecover) {
  recovery_.Add(*table_);
  recovery_.Forget("m/t");
  recovery_.Follow();
  EXPECT_TRUE(recovery_.is_done());
  EXPECT_FALSE(recovery_.result().is_unverified);
}

TEST_F(StreamRecoveryTest, ATableThatGoesIsNotWaitedFor) {
  Tell(At(5));
  recovery_.Add(*table_);
  recovery_.Follow();
  EXPECT_FALSE(recovery_.is_done());
  recovery_.Forget("m/t");
  recovery_.Follow();
  EXPECT_TRUE(recovery_.is_done());
}

TEST_F(StreamRecoveryTest, AStreamThatWasToldNothingVerifiesNothing) {
  recovery_.Add(*table_);
  recovery_.Follow();
  EXPECT_TRUE(recovery_.is_done());
  EXPECT_TRUE(recovery_.result().is_unverified);
}

TEST_F(StreamRecoveryTest, AStreamThatDoesNotAnswerIsAskedAgainUntilTheLimit) {
  Tell(At(5));
  stream_.SetDown(true);
  recovery_.Add(*table_);
  recovery_.Follow();
  EXPECT_FALSE(recovery_.is_done());
  stream_.SetDown(false);
  recovery_.Follow();
  EXPECT_EQ(recovery_.result().records, 3u);
  StreamRecovery short_one(*source_, Duration(0));
  short_one.Add(*table_);
  short_one.Follow();
  EXPECT_TRUE(short_one.is_done());
  EXPECT_TRUE(short_one.result().is_unverified);
}

}  // namespace
}  // namespace hps
