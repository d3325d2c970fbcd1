#include "update/kafka/kafka_producer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "testing/await.h"
#include "testing/test_directory.h"
#include "update/kafka/test_kafka_brokers.h"

namespace hps {
namespace {

constexpr auto kDeliveryPatience = std::chrono::seconds(60);

TEST(KafkaProducer, RefusesOptionsThatCannotWork) {
  UpdateProducerOptions options{.brokers = "127.0.0.1:1", .table = {.name = "m/t", .dim = 4}};
  options.connect_timeout = std::chrono::milliseconds(300);
  const auto code = [&] { return UpdateProducer::Create(options).status().code(); };
  const absl::StatusCode away = code();
  EXPECT_TRUE(away == absl::StatusCode::kUnavailable || away == absl::StatusCode::kDeadlineExceeded)
      << away;
  options.table.dim = 0;
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  options.table.dim = 4;
  options.message_bytes = 1000;
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  options.message_bytes = 64 << 10;
  options.memory_bytes_max = 64 << 10;
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  options.memory_bytes_max = 1 << 20;
  options.kafka = {{"acks", "0"}};
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  const TestDirectory directory;
  const std::string secret = directory.Write("secret", "secret");
  ASSERT_EQ(chmod(secret.c_str(), 0644), 0);
  options.kafka = {{"sasl.password", "file:" + secret}};
  EXPECT_EQ(code(), absl::StatusCode::kFailedPrecondition);
  options.kafka = {};
  options.brokers = "";
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
}

// One table's topic, a producer for it, and what a plain consumer finds there.
class KafkaProducerTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kDim = 4;
  struct Message {
    uint32_t partition = 0;
    std::string payload;
    std::string partitions_header;
  };

  void SetUp() override {
    spec_.name =
        absl::StrCat("producer/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    spec_.dim = kDim;
    topic_ = UpdateTopic(spec_.name);
  }
  std::unique_ptr<UpdateProducer> Make(UpdateProducerOptions options = {}) {
    options.brokers = kafka_.addresses();
    options.table = spec_;
    auto producer = UpdateProducer::Create(options);
    EXPECT_TRUE(producer.ok()) << producer.status();
    return producer.ok() ? *std::move(producer) : nullptr;
  }
  static std::vector<std::byte> Rows(const std::vector<Key>& keys, float version) {
    std::vector<float> rows;
    for (const Key key : keys) {
      for (uint32_t i = 0; i < kDim; ++i) rows.push_back(static_cast<float>(key) + version);
    }
    const auto bytes = AsBytes(std::span<const float>(rows));
    return {bytes.begin(), bytes.end()};
  }
  static std::vector<Key> Keys(Key first, size_t count) {
    std::vector<Key> keys(count);
    std::iota(keys.begin(), keys.end(), first);
    return keys;
  }

  std::vector<Message> ReadAll(uint32_t partition_count) {
    auto client = KafkaClient::Make({.brokers = kafka_.addresses(),
                                     .fixed = {{"group.id", "reader"},
                                               {"enable.partition.eof", "true"},
                                               {"auto.offset.reset", "earliest"}}});
    EXPECT_TRUE(client.ok());
    const KafkaPartitionList list = NewKafkaPartitionList();
    for (uint32_t i = 0; i < partition_count; ++i) {
      rd_kafka_topic_partition_list_add(list.get(), topic_.c_str(), static_cast<int32_t>(i))
          ->offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    EXPECT_EQ(rd_kafka_assign((*client)->handle(), list.get()), RD_KAFKA_RESP_ERR_NO_ERROR);
    std::vector<Message> messages;
    for (uint32_t ends = 0; ends < partition_count;) {
      const KafkaMessage message(rd_kafka_consumer_poll((*client)->handle(), 60'000));
      if (message == nullptr) {
        ADD_FAILURE() << "no message";
        break;
      }
      if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) ++ends;
      if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
      messages.push_back({.partition = static_cast<uint32_t>(message->partition),
                          .payload = {static_cast<const char*>(message->payload), message->len}});
      EXPECT_EQ(message->key_len, 0u);
      rd_kafka_headers_t* headers = nullptr;
      const void* value = nullptr;
      size_t size = 0;
      if (rd_kafka_message_headers(message.get(), &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
          rd_kafka_header_get_last(headers, kPartitionsHeader, &value, &size) ==
              RD_KAFKA_RESP_ERR_NO_ERROR) {
        messages.back().partitions_header = {static_cast<const char*>(value), size};
      }
    }
    return messages;
  }

  TestKafkaBrokers& kafka_ = TestKafkaBrokers::Shared();
  TableSpec spec_;
  std::string topic_;
};

TEST_F(KafkaProducerTest, PublishesRowsAndDeletesInOrder) {
  kafka_.MakeTopic(topic_, 3);
  const auto producer = Make();
  ASSERT_NE(producer, nullptr);
  EXPECT_EQ(producer->partition_count(), 3u);
  const std::vector<Key> keys = Keys(-500, 1000);
  ASSERT_TRUE(producer->Upsert(keys, Rows(keys, 1), kDeliveryPatience).ok());
  ASSERT_TRUE(producer->Delete(Keys(0, 10), kDeliveryPatience).ok());
  ASSERT_TRUE(producer->Upsert(Keys(5, 1), Rows({5}, 7), kDeliveryPatience).ok());
  const absl::Status flushed = producer->Flush(kDeliveryPatience);
  ASSERT_TRUE(flushed.ok()) << flushed;
  std::map<Key, float> rows;
  for (const Message& message : ReadAll(3)) {
    const auto update = DecodeUpdate(AsBytes(message.payload), spec_);
    ASSERT_TRUE(update.ok()) << update.status();
    EXPECT_EQ(message.partitions_header, std::string("\x03\0\0\0", 4));
    EXPECT_GT(update->publish_time_us, 0);
    for (size_t i = 0; i < update->count; ++i) {
      EXPECT_EQ(UpdatePartition(update->key(i), 3), message.partition);
      if (update->kind == UpdateKind::kDelete) {
        rows.erase(update->key(i));
      } else {
        rows[update->key(i)] = LoadLittleEndian<float>(update->row(i));
      }
    }
  }
  EXPECT_EQ(rows.size(), 991u);
  EXPECT_EQ(rows.at(5), 12.0f);
  EXPECT_EQ(rows.at(-500), -499.0f);
  EXPECT_EQ(rows.count(0), 0u);
  const UpdateProducerStatistics statistics = producer->Statistics();
  EXPECT_EQ(statistics.rows, 1011u);
  EXPECT_EQ(statistics.rows_delivered, 1011u);
  EXPECT_EQ(statistics.rows_failed, 0u);
  EXPECT_EQ(statistics.memory_bytes, 0u);
}

TEST_F(KafkaProducerTest, MessagesHaveTheWantedSizeAndMemoryIsBounded) {
  kafka_.MakeTopic(topic_, 1);
  const auto producer = Make({.message_bytes = 32 << 10, .memory_bytes_max = 100 << 10});
  ASSERT_NE(producer, nullptr);
  const std::vector<Key> keys = Keys(0, 20'000);
  size_t memory_bytes_peak = 0;
  for (size_t i = 0; i < keys.size(); i += 100) {
    const std::vector<Key> some(keys.begin() + static_cast<ptrdiff_t>(i),
                                keys.begin() + static_cast<ptrdiff_t>(i + 100));
    ASSERT_TRUE(producer->Upsert(some, Rows(some, 0), kDeliveryPatience).ok());
    memory_bytes_peak = std::max<size_t>(memory_bytes_peak, producer->Statistics().memory_bytes);
  }
  ASSERT_TRUE(producer->Flush(kDeliveryPatience).ok());
  EXPECT_GT(memory_bytes_peak, 0u);
  EXPECT_LE(memory_bytes_peak, 100u << 10);
  std::set<Key> found;
  for (const Message& message : ReadAll(1)) {
    EXPECT_LE(message.payload.size(), 32u << 10);
    const auto update = DecodeUpdate(AsBytes(message.payload), spec_);
    ASSERT_TRUE(update.ok());
    for (size_t i = 0; i < update->count; ++i) found.insert(update->key(i));
  }
  EXPECT_EQ(found.size(), keys.size());
}

TEST_F(KafkaProducerTest, SendsWhatLingersWithoutFlush) {
  kafka_.MakeTopic(topic_, 1);
  const auto producer = Make({.linger = std::chrono::milliseconds(1)});
  ASSERT_NE(producer, nullptr);
  ASSERT_TRUE(producer->Upsert(Keys(1, 1), Rows({1}, 0), kDeliveryPatience).ok());
  EXPECT_TRUE(AwaitCondition([&] { return producer->Statistics().rows_delivered > 0; }));
}

TEST_F(KafkaProducerTest, RefusesRowsThatDoNotMatchTheirKeys) {
  kafka_.MakeTopic(topic_, 1);
  const auto producer = Make();
  ASSERT_NE(producer, nullptr);
  EXPECT_EQ(producer->Upsert(Keys(1, 2), Rows({1}, 0), kDeliveryPatience).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(KafkaProducerTest, NeverCreatesATopic) {
  UpdateProducerOptions options{.brokers = kafka_.addresses(), .table = spec_};
  const auto producer = UpdateProducer::Create(options);
  EXPECT_EQ(producer.status().code(), absl::StatusCode::kNotFound) << producer.status();
  EXPECT_NE(producer.status().message().find(topic_), std::string::npos);
  auto client = KafkaClient::Make({.type = RD_KAFKA_PRODUCER, .brokers = kafka_.addresses()});
  EXPECT_EQ((*client)->AskTopics(kDeliveryPatience)->count(topic_), 0u);
}

TEST_F(KafkaProducerTest, ReportsMessagesThatFailed) {
  kafka_.MakeTopic(topic_, 1, {{"max.message.bytes", "2000"}});
  std::vector<absl::Status> delivered;
  std::vector<Key> failed;
  UpdateProducerOptions options;
  options.on_delivery = [&](const UpdateDelivery& delivery) {
    delivered.push_back(delivery.status);
    if (!delivery.status.ok()) {
      EXPECT_EQ(delivery.offset, -1);
      failed.insert(failed.end(), delivery.keys.begin(), delivery.keys.end());
    }
  };
  const auto producer = Make(options);
  ASSERT_NE(producer, nullptr);
  const std::vector<Key> many = Keys(100, 400);
  ASSERT_TRUE(producer->Upsert(many, Rows(many, 0), kDeliveryPatience).ok());
  const absl::Status status = producer->Flush(kDeliveryPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("1 messages with 400 rows"), std::string::npos) << status;
  EXPECT_EQ(failed, many);
  EXPECT_EQ(producer->Statistics().rows_failed, 400u);
  // The failure has been reported; a small message passes.
  ASSERT_TRUE(producer->Upsert(Keys(1, 1), Rows({1}, 0), kDeliveryPatience).ok());
  const absl::Status next = producer->Flush(kDeliveryPatience);
  EXPECT_TRUE(next.ok()) << next;
  EXPECT_EQ(delivered.size(), 2u);
}

TEST_F(KafkaProducerTest, EndsWhenTheTopicHasAnotherNumberOfPartitions) {
  kafka_.MakeTopic(topic_, 2);
  const auto producer = Make();
  ASSERT_NE(producer, nullptr);
  ASSERT_TRUE(producer->Upsert(Keys(1, 1), Rows({1}, 0), kDeliveryPatience).ok());
  ASSERT_TRUE(producer->Flush(kDeliveryPatience).ok());
  kafka_.Grow(topic_, 3);
  absl::Status status;
  ASSERT_TRUE(AwaitCondition([&] {
    status = producer->Flush(kDeliveryPatience);
    return !status.ok();
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(producer->Upsert(Keys(1, 1), Rows({1}, 0), kDeliveryPatience).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Make()->partition_count(), 3u);
}

TEST_F(KafkaProducerTest, EndsWhenTheTopicIsDeleted) {
  kafka_.MakeTopic(topic_, 1);
  const auto producer = Make();
  ASSERT_NE(producer, nullptr);
  kafka_.DropTopic(topic_);
  absl::Status status;
  ASSERT_TRUE(AwaitCondition([&] {
    status = producer->Flush(kDeliveryPatience);
    return !status.ok();
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

}  // namespace
}  // namespace hps
