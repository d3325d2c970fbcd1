#include "update/kafka/kafka_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "hps/update_producer.h"
#include "testing/await.h"
#include "testing/contracts/update_source_contract.h"
#include "update/kafka/test_kafka_brokers.h"
#include "update/kafka/test_kafka_writer.h"
#include "update/update_message.h"

namespace hps {
namespace {

class KafkaStream final : public ContractStream {
 public:
  void MakeTopic(const std::string& table, uint32_t partition_count) override {
    // Time stamps are those of the producer, years ago: retention must not take the records.
    kafka_.MakeTopic(UpdateTopic(table), partition_count, {{"retention.ms", "-1"}});
  }
  void DropTopic(const std::string& table) override { kafka_.DropTopic(UpdateTopic(table)); }
  void Grow(const std::string& table, uint32_t partition_count) override {
    kafka_.Grow(UpdateTopic(table), partition_count);
    writer_ = std::make_unique<TestKafkaWriter>(kafka_.addresses());  // knows the new partitions
  }
  void Append(const std::string& table, uint32_t partition, const std::string& payload,
              int64_t time_ms, uint32_t producer_partitions) override {
    writer_->Write(UpdateTopic(table), partition, payload, time_ms, producer_partitions);
  }
  void Settle() override { writer_->Flush(); }
  void Expire(const std::string& table, uint32_t partition, uint64_t low) override {
    writer_->Flush();
    kafka_.DeleteRecords(UpdateTopic(table), partition, low);
  }
  std::unique_ptr<UpdateSource> NewSource(const std::string& node,
                                          size_t batch_records_max) override {
    auto source = MakeKafkaSource({.brokers = kafka_.addresses(),
                                   .group = node,
                                   .batch_records_max = batch_records_max,
                                   .look_every = std::chrono::milliseconds(200)});
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }

 private:
  TestKafkaBrokers& kafka_ = TestKafkaBrokers::Shared();
  std::unique_ptr<TestKafkaWriter> writer_ = std::make_unique<TestKafkaWriter>(kafka_.addresses());
};

INSTANTIATE_TEST_SUITE_P(Kafka, UpdateSourceContract,
                         ::testing::Values(UpdateStreamFactory{
                             .name = "kafka",
                             .make = [] { return std::make_unique<KafkaStream>(); }}),
                         UpdateStreamName);

// What is Kafka's own.
class KafkaSourceTest : public ::testing::Test {
 protected:
  static constexpr auto kPatience = std::chrono::seconds(60);

  void SetUp() override {
    table_ =
        absl::StrCat("source/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    topic_ = UpdateTopic(table_);
    options_ = {.brokers = TestKafkaBrokers::Shared().addresses(), .group = "node"};
  }
  std::unique_ptr<UpdateSource> Make() {
    auto source = MakeKafkaSource(options_);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }
  // Keeps what it polls.
  static testing::AssertionResult Poll(UpdateSource& source, size_t count,
                                       std::vector<UpdateRecord>* records) {
    return AwaitCondition([&] {
      auto batch = source.Poll(RealClock().Now() + std::chrono::milliseconds(100));
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok()) return true;
      for (UpdateRecord& record : batch->records) records->push_back(std::move(record));
      return records->size() >= count;
    });
  }
  // Polls, and keeps nothing.
  template <typename Condition>
  static testing::AssertionResult PollUntil(UpdateSource& source, const Condition& condition) {
    return AwaitCondition([&] {
      const auto batch = source.Poll(RealClock().Now() + std::chrono::milliseconds(50));
      EXPECT_TRUE(batch.ok()) << batch.status();
      return !batch.ok() || condition(source.Statistics());
    });
  }

  TestKafkaBrokers& kafka_ = TestKafkaBrokers::Shared();
  KafkaSourceOptions options_;
  std::string table_;
  std::string topic_;
};

TEST_F(KafkaSourceTest, NeedsBrokersAGroupAndSettingsThatExist) {
  EXPECT_EQ(MakeKafkaSource({.brokers = "127.0.0.1:1"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeKafkaSource({.group = "node"}).status().code(), absl::StatusCode::kInvalidArgument);
  options_.settings = *KafkaSettings::Make({{"no.such.setting", "1"}});
  EXPECT_EQ(MakeKafkaSource(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KafkaSourceTest, BrokersThatAreAwayAreHealthAndNoError) {
  options_.brokers = "127.0.0.1:1";
  const auto source = Make();
  ASSERT_TRUE(source->Subscribe({.table = table_}).ok());
  ASSERT_TRUE(PollUntil(*source, [](const auto& now) { return !now.health.ok(); }));
  EXPECT_TRUE(source->Statistics().missing_topics.empty());  // nobody said so
  EXPECT_FALSE(source->Committed(table_, RealClock().Now() + std::chrono::milliseconds(100)).ok());
}

TEST_F(KafkaSourceTest, EndsWhileATopicThatItReadIsDeleted) {
  kafka_.MakeTopic(topic_, 2);
  {
    TestKafkaWriter writer(kafka_.addresses());
    for (int i = 0; i < 10; ++i) writer.Write(topic_, static_cast<uint32_t>(i % 2), "x");
  }
  options_.look_every = std::chrono::milliseconds(100);
  auto source = Make();
  ASSERT_TRUE(source->Subscribe({.table = table_}).ok());
  {
    std::vector<UpdateRecord> records;
    ASSERT_TRUE(Poll(*source, 10, &records));
    ASSERT_EQ(records.size(), 10u);
  }
  kafka_.DropTopic(topic_);
  ASSERT_TRUE(PollUntil(*source, [](const auto& now) { return !now.missing_topics.empty(); }));
  source.reset();  // librdkafka 2.0.2 would wait for ever
}

TEST_F(KafkaSourceTest, GivesNoMoreThanItsMemoryAllows) {
  kafka_.MakeTopic(topic_, 1);
  {
    TestKafkaWriter writer(kafka_.addresses());
    for (int i = 0; i < 50; ++i) writer.Write(topic_, 0, std::string(100'000, 'x'));
  }
  options_.memory_bytes_max = 1'000'000;
  const auto source = Make();
  ASSERT_TRUE(source->Subscribe({.table = table_}).ok());
  size_t taken = 0;
  while (taken < 50) {
    std::vector<UpdateRecord> held;
    ASSERT_TRUE(Poll(*source, std::min<size_t>(10, 50 - taken), &held));
    taken += held.size();
    // A Poll may pass the limit by what it takes at once.
    auto more = source->Poll(RealClock().Now() + std::chrono::milliseconds(100));
    ASSERT_TRUE(more.ok());
    EXPECT_TRUE(more->records.empty());
  }
}

TEST_F(KafkaSourceTest, KeepsToARateOfRows) {
  kafka_.MakeTopic(topic_, 1);
  const TableSpec spec{.name = table_, .dim = 2};
  constexpr size_t kRows = 100, kMessages = 30;
  std::vector<std::byte> message(EncodedUpdateBytes(spec, UpdateKind::kUpsert, kRows));
  const std::vector<Key> keys(kRows, 1);
  const std::vector<std::byte> rows(kRows * spec.row_bytes());
  EncodeUpdate(spec, {.keys = keys, .rows = rows}, message);
  {
    TestKafkaWriter writer(kafka_.addresses());
    for (size_t i = 0; i < kMessages; ++i) writer.Write(topic_, 0, std::string(AsText(message)));
  }
  options_.rows_per_second_max = 1000;
  const auto source = Make();
  ASSERT_TRUE(source->Subscribe({.table = table_}).ok());
  const TimePoint begin = RealClock().Now();
  std::vector<UpdateRecord> records;
  ASSERT_TRUE(Poll(*source, kMessages, &records));
  EXPECT_EQ(records.size(), kMessages);
  // 3,000 rows: one second is unused at the start, the last message is paid for afterwards.
  EXPECT_GE(RealClock().Now() - begin, std::chrono::milliseconds(1800));
}

TEST_F(KafkaSourceTest, ReadsMessagesOfTheLargestSize) {
  kafka_.MakeTopic(topic_, 1, {{"max.message.bytes", "20000000"}});
  {
    TestKafkaWriter writer(kafka_.addresses());
    writer.Write(topic_, 0, std::string(kUpdateMessageBytesMax, 'x'));
    writer.Write(topic_, 0, std::string(kUpdateMessageBytesMax + 1, 'x'));
    writer.Write(topic_, 0, "small");
  }
  const auto source = Make();
  ASSERT_TRUE(source->Subscribe({.table = table_}).ok());
  std::vector<UpdateRecord> records;
  ASSERT_TRUE(Poll(*source, 3, &records));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].payload.size(), kUpdateMessageBytesMax + 1);
}

TEST_F(KafkaSourceTest, ReadsWhatTheProducerPublishes) {
  kafka_.MakeTopic(topic_, 3);
  const TableSpec spec{.name = table_, .dim = 1};
  const auto producer = UpdateProducer::Create({.brokers = kafka_.addresses(), .table = spec});
  ASSERT_TRUE(producer.ok()) << producer.status();
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<std::byte> rows(keys.size() * spec.row_bytes());
  ASSERT_TRUE((*producer)->Upsert(keys, rows, kPatience).ok());
  ASSERT_TRUE((*producer)->Flush(kPatience).ok());
  const auto source = Make();
  ASSERT_TRUE(source->Subscribe({.table = table_}).ok());
  size_t row_count = 0;
  std::vector<UpdateRecord> records;
  ASSERT_TRUE(Poll(*source, 3, &records));
  for (const UpdateRecord& record : records) {
    EXPECT_EQ(record.partition_count, 3u);
    const auto update = DecodeUpdate(record.payload, spec);
    ASSERT_TRUE(update.ok()) << update.status();
    row_count += update->count;
    for (size_t i = 0; i < update->count; ++i) {
      EXPECT_EQ(UpdatePartition(update->key(i), 3), record.position.partition);
    }
  }
  EXPECT_EQ(row_count, keys.size());
}

}  // namespace
}  // namespace hps
