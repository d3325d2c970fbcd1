#include "testing/fakes/fake_update_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/bytes.h"
#include "testing/contracts/update_source_contract.h"

namespace hps {
namespace {

class MemoryStream final : public ContractStream {
 public:
  void MakeTopic(const std::string& table, uint32_t partition_count) override {
    stream_.MakeTopic(table, partition_count);
  }
  void DropTopic(const std::string& table) override { stream_.DropTopic(table); }
  void Grow(const std::string& table, uint32_t partition_count) override {
    stream_.Grow(table, partition_count);
  }
  void Append(const std::string& table, uint32_t partition, const std::string& payload,
              int64_t time_ms, uint32_t producer_partitions) override {
    const auto bytes = AsBytes(payload);
    stream_.Append(table, partition,
                   {.payload = {bytes.begin(), bytes.end()},
                    .time_ms = time_ms,
                    .partition_count = producer_partitions});
  }
  void Settle() override {}
  void Expire(const std::string& table, uint32_t partition, uint64_t low) override {
    stream_.Expire(table, partition, low);
  }
  std::unique_ptr<UpdateSource> NewSource(const std::string& node,
                                          size_t batch_records_max) override {
    return stream_.NewSource({.batch_records_max = batch_records_max, .node = node});
  }

 private:
  FakeUpdateStream stream_;
};

INSTANTIATE_TEST_SUITE_P(Memory, UpdateSourceContract,
                         ::testing::Values(UpdateStreamFactory{
                             .name = "memory",
                             .make = [] { return std::make_unique<MemoryStream>(); }}),
                         UpdateStreamName);

TEST(FakeUpdateStream, PollWaitsForARecord) {
  FakeUpdateStream stream;
  stream.MakeTopic("m/t", 1);
  const auto source = stream.NewSource({});
  ASSERT_TRUE(source->Subscribe({.table = "m/t"}).ok());
  ASSERT_TRUE(source->Poll(RealClock().Now()).ok());  // the event of the start
  std::thread producer([&] { stream.Append("m/t", 0, {}); });
  const auto batch = source->Poll(RealClock().Now() + std::chrono::minutes(1));
  producer.join();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->records.size(), 1u);
}

TEST(FakeUpdateStream, AStreamThatIsDownGivesNothing) {
  FakeUpdateStream stream;
  stream.MakeTopic("m/t", 1);
  stream.Append("m/t", 0, {});
  stream.SetDown(true);
  const auto source = stream.NewSource({});
  ASSERT_TRUE(source->Subscribe({.table = "m/t"}).ok());
  const auto nothing = source->Poll(RealClock().Now());
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->records.empty());
  EXPECT_EQ(source->Statistics().health.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(source->Committed("m/t", RealClock().Now()).status().code(),
            absl::StatusCode::kUnavailable);
  stream.SetDown(false);
  const auto started = source->Poll(RealClock().Now());
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(started->events.size(), 1u);
  const auto batch = source->Poll(RealClock().Now());
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->records.size(), 1u);
}

TEST(FakeUpdateStream, PollReturnsTheStatusThatATestSets) {
  FakeUpdateStream stream;
  stream.SetPollStatus(absl::PermissionDeniedError("no"));
  EXPECT_EQ(stream.NewSource({})->Poll(RealClock().Now()).status().code(),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace hps
