#include "update/kafka/kafka_client.h"

#include <gtest/gtest.h>

#include "update/kafka/test_kafka_brokers.h"

namespace hps {
namespace {

constexpr auto kTimeout = std::chrono::seconds(30);

std::unique_ptr<KafkaClient> MakeClient() {
  auto client = KafkaClient::Make(
      {.type = RD_KAFKA_PRODUCER, .brokers = TestKafkaBrokers::Shared().addresses()});
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

TEST(KafkaClient, NeedsBrokersAndKnownSettings) {
  EXPECT_EQ(KafkaClient::Make({}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto unknown = KafkaSettings::Make({{"no.such.setting", "1"}});
  ASSERT_TRUE(unknown.ok());
  const auto client = KafkaClient::Make({.brokers = "localhost:1", .settings = *unknown});
  EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(client.status().message().find("no.such.setting"), std::string::npos);
}

TEST(KafkaClient, AWrongValueIsNotPrinted) {
  const auto wrong = KafkaSettings::Make({{"ssl.key.pem", "my secret key"}});
  ASSERT_TRUE(wrong.ok());
  for (const auto& settings :
       {*wrong, *KafkaSettings::Make({{"fetch.max.bytes", "my secret key"}})}) {
    const auto client = KafkaClient::Make({.brokers = "localhost:1", .settings = settings});
    if (client.ok()) continue;
    EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(client.status().message().find("my secret"), std::string::npos) << client.status();
  }
}

TEST(KafkaClient, BrokersThatAreAwayAreUnavailable) {
  const auto client = KafkaClient::Make({.brokers = "127.0.0.1:1"});
  ASSERT_TRUE(client.ok());
  const auto topics = (*client)->AskTopics(std::chrono::milliseconds(300));
  EXPECT_TRUE(topics.status().code() == absl::StatusCode::kUnavailable ||
              topics.status().code() == absl::StatusCode::kDeadlineExceeded)
      << topics.status();
}

TEST(KafkaClient, AsksForTopicsWithoutCreatingThem) {
  TestKafkaBrokers& kafka = TestKafkaBrokers::Shared();
  kafka.MakeTopic("hps_et.client.three", 3);
  const auto client = MakeClient();
  const auto topics = client->AskTopics(kTimeout);
  ASSERT_TRUE(topics.ok()) << topics.status();
  EXPECT_EQ(topics->at("hps_et.client.three").partition_count, 3u);
  EXPECT_TRUE(topics->at("hps_et.client.three").without_leader.empty());
  EXPECT_EQ(topics->count("hps_et.client.none"), 0u);
  kafka.DropTopic("hps_et.client.three");
  EXPECT_EQ(client->AskTopics(kTimeout)->count("hps_et.client.three"), 0u);
}

TEST(KafkaClient, AsksForOffsets) {
  TestKafkaBrokers& kafka = TestKafkaBrokers::Shared();
  kafka.MakeTopic("hps_et.client.offsets", 2);
  const auto client = MakeClient();
  const std::vector<uint32_t> partitions = {0, 1}, one_too_many = {0, 1, 2};
  for (const int64_t time : {KafkaClient::kLow, KafkaClient::kHigh}) {
    const auto offsets = client->AskOffsets("hps_et.client.offsets", partitions, time, kTimeout);
    ASSERT_TRUE(offsets.ok()) << offsets.status();
    EXPECT_EQ(*offsets, (std::vector<uint64_t>{0, 0}));
  }
  const auto offsets = client->AskOffsets("hps_et.client.offsets", partitions, 1, kTimeout);
  ASSERT_TRUE(offsets.ok()) << offsets.status();
  EXPECT_EQ(*offsets, std::vector<uint64_t>(2, KafkaClient::kNoOffset));
  EXPECT_FALSE(client
                   ->AskOffsets("hps_et.client.offsets", one_too_many, KafkaClient::kLow,
                                std::chrono::seconds(1))
                   .ok());
}

TEST(KafkaClient, ErrorsHaveTheCodesOfTheirKind) {
  const auto code = [](rd_kafka_resp_err_t error) { return KafkaStatus(error, "x").code(); };
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR_NO_ERROR), absl::StatusCode::kOk);
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR__MSG_TIMED_OUT), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR__AUTHENTICATION), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR__QUEUE_FULL), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(RD_KAFKA_RESP_ERR_UNKNOWN), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace hps
