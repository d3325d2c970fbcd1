#include "update/kafka/test_kafka_brokers.h"

#include <array>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "testing/await.h"

namespace hps {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(2);  // and again, until kAwaitMax
constexpr int kTryMs = 15'000;                            // of a request

void Require(bool holds, const std::string& what) {
  TestServerProgram::Require(holds, "Kafka brokers", what);
}

template <typename Condition>
void RequireInTime(const Condition& condition, const std::string& what) {
  Require(HoldsInTime(condition), kMissedWait + what);
}

void RequireNoError(rd_kafka_resp_err_t error, const std::string& what) {
  Require(error == RD_KAFKA_RESP_ERR_NO_ERROR, absl::StrCat(what, ": ", rd_kafka_err2str(error)));
}

// Sends an operator's request by `send(client, options, queue)`; returns its result.
template <typename Send>
rd_kafka_event_t* AskOnce(rd_kafka_t* client, rd_kafka_admin_op_t operation, const Send& send) {
  const std::unique_ptr<rd_kafka_queue_t, KafkaClose> queue(rd_kafka_queue_new(client));
  rd_kafka_AdminOptions_t* const options = rd_kafka_AdminOptions_new(client, operation);
  std::array<char, 256> why{};
  RequireNoError(rd_kafka_AdminOptions_set_request_timeout(options, kTryMs, why.data(), why.size()),
                 why.data());
  send(client, options, queue.get());
  rd_kafka_event_t* const event = rd_kafka_queue_poll(queue.get(), 2 * kTryMs);
  rd_kafka_AdminOptions_destroy(options);
  Require(event != nullptr, "no answer");
  return event;
}

// A request that is sent again may find its work done. WaitForPartitions says whether it is.
bool MayBeDone(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS ||
         error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
         error == RD_KAFKA_RESP_ERR_INVALID_PARTITIONS;
}

void RequireTopics(rd_kafka_event_t* event, const rd_kafka_topic_result_t** results, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[i]);
    if (!MayBeDone(error)) RequireNoError(error, rd_kafka_topic_result_name(results[i]));
  }
  rd_kafka_event_destroy(event);
}

}  // namespace

TestKafkaBrokers& TestKafkaBrokers::Shared() {
  static TestKafkaBrokers brokers(1);
  return brokers;
}

TestKafkaBrokers::TestKafkaBrokers(size_t count)
    : count_(count),
      program_("Kafka brokers",
               {HPS_SOURCE_DIRECTORY "/tools/kafka/brokers.py", absl::StrCat("--count=", count)}) {
  MakeAdmin();
}

void TestKafkaBrokers::Command(const char* command, size_t broker) {
  HPS_CHECK(broker < count_);
  program_.Command(command, broker);
}

void TestKafkaBrokers::WaitForPartitions(const std::string& topic, uint32_t partition_count) {
  // A broker that is asked may not know yet what another one has answered: as many answers in a row
  // as there are brokers.
  size_t good = 0;
  RequireInTime(
      [&] {
        const auto topics = admin_->AskTopics(kAnswerTimeout);
        if (!topics.ok()) return false;
        const auto found = topics->find(topic);
        const uint32_t count = found == topics->end() ? 0 : found->second.partition_count;
        good = count == partition_count ? good + 1 : 0;
        return good == 3 * count_;
      },
      absl::StrCat("topic ", topic, " does not change"));
  if (partition_count > 0) Ends(topic, partition_count);  // its leaders answer
}

void TestKafkaBrokers::MakeTopic(const std::string& topic, uint32_t partition_count,
                                 const Settings& settings) {
  std::array<char, 256> why{};
  rd_kafka_NewTopic_t* made = rd_kafka_NewTopic_new(
      topic.c_str(), static_cast<int>(partition_count), -1, why.data(), why.size());
  Require(made != nullptr, why.data());
  for (const auto& [name, value] : settings) {
    RequireNoError(rd_kafka_NewTopic_set_config(made, name.c_str(), value.c_str()), name);
  }
  Create(made);
  WaitForPartitions(topic, partition_count);
}

void TestKafkaBrokers::MakeUnreplicatedTopic(const std::string& topic, uint32_t partition_count) {
  std::array<char, 256> why{};
  rd_kafka_NewTopic_t* const made = rd_kafka_NewTopic_new(
      topic.c_str(), static_cast<int>(partition_count), -1, why.data(), why.size());
  Require(made != nullptr, why.data());
  for (uint32_t i = 0; i < partition_count; ++i) {
    auto broker = static_cast<int32_t>(1 + i % count_);  // as brokers.py numbers them
    RequireNoError(rd_kafka_NewTopic_set_replica_assignment(made, static_cast<int32_t>(i), &broker,
                                                            1, why.data(), why.size()),
                   why.data());
  }
  RequireNoError(rd_kafka_NewTopic_set_config(made, "min.insync.replicas", "1"), topic);
  Create(made);
  WaitForPartitions(topic, partition_count);
}

void TestKafkaBrokers::MakeAdmin() {
  auto admin = KafkaClient::Make({.type = RD_KAFKA_PRODUCER, .brokers = addresses()});
  HPS_CHECK(admin.ok());
  admin_ = *std::move(admin);
}

// Brokers that have just started name no controller, and a client that has heard of none may never
// hear of one. So each try uses another client.
template <typename Send>
rd_kafka_event_t* TestKafkaBrokers::Ask(rd_kafka_admin_op_t operation, const Send& send) {
  const TimePoint end = RealClock().Now() + 2 * kAwaitMax;
  while (true) {
    rd_kafka_event_t* const event = AskOnce(admin_->handle(), operation, send);
    const rd_kafka_resp_err_t error = rd_kafka_event_error(event);
    if (error != RD_KAFKA_RESP_ERR__TIMED_OUT || RealClock().Now() > end) {
      RequireNoError(error, rd_kafka_event_error_string(event));
      return event;
    }
    std::cerr << "Kafka brokers of the test: " << rd_kafka_event_error_string(event)
              << "; asked again" << std::endl;
    rd_kafka_event_destroy(event);
    MakeAdmin();
  }
}

void TestKafkaBrokers::Create(rd_kafka_NewTopic_t* made) {
  rd_kafka_event_t* const event =
      Ask(RD_KAFKA_ADMIN_OP_CREATETOPICS, [&](auto* client, auto* options, auto* queue) {
        rd_kafka_CreateTopics(client, &made, 1, options, queue);
      });
  rd_kafka_NewTopic_destroy(made);
  size_t count = 0;
  const auto* const result = rd_kafka_event_CreateTopics_result(event);
  RequireTopics(event, rd_kafka_CreateTopics_result_topics(result, &count), count);
}

void TestKafkaBrokers::DropTopic(const std::string& topic) {
  rd_kafka_DeleteTopic_t* dropped = rd_kafka_DeleteTopic_new(topic.c_str());
  rd_kafka_event_t* const event =
      Ask(RD_KAFKA_ADMIN_OP_DELETETOPICS, [&](auto* client, auto* options, auto* queue) {
        rd_kafka_DeleteTopics(client, &dropped, 1, options, queue);
      });
  rd_kafka_DeleteTopic_destroy(dropped);
  size_t count = 0;
  const auto* const result = rd_kafka_event_DeleteTopics_result(event);
  RequireTopics(event, rd_kafka_DeleteTopics_result_topics(result, &count), count);
  WaitForPartitions(topic, 0);
}

void TestKafkaBrokers::Grow(const std::string& topic, uint32_t partition_count) {
  std::array<char, 256> why{};
  rd_kafka_NewPartitions_t* grown =
      rd_kafka_NewPartitions_new(topic.c_str(), partition_count, why.data(), why.size());
  Require(grown != nullptr, why.data());
  rd_kafka_event_t* const event =
      Ask(RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, [&](auto* client, auto* options, auto* queue) {
        rd_kafka_CreatePartitions(client, &grown, 1, options, queue);
      });
  rd_kafka_NewPartitions_destroy(grown);
  size_t count = 0;
  const auto* const result = rd_kafka_event_CreatePartitions_result(event);
  RequireTopics(event, rd_kafka_CreatePartitions_result_topics(result, &count), count);
  WaitForPartitions(topic, partition_count);
}

void TestKafkaBrokers::DeleteRecords(const std::string& topic, uint32_t partition, uint64_t low) {
  const KafkaPartitionList before = NewKafkaPartitionList(1);
  rd_kafka_topic_partition_list_add(before.get(), topic.c_str(), static_cast<int32_t>(partition))
      ->offset = static_cast<int64_t>(low);
  rd_kafka_DeleteRecords_t* deleted = rd_kafka_DeleteRecords_new(before.get());
  rd_kafka_event_t* const event =
      Ask(RD_KAFKA_ADMIN_OP_DELETERECORDS, [&](auto* client, auto* options, auto* queue) {
        rd_kafka_DeleteRecords(client, &deleted, 1, options, queue);
      });
  rd_kafka_DeleteRecords_destroy(deleted);
  const auto* const result = rd_kafka_event_DeleteRecords_result(event);
  RequireNoError(rd_kafka_DeleteRecords_result_offsets(result)->elems[0].err, "delete records");
  rd_kafka_event_destroy(event);
}

std::vector<uint64_t> TestKafkaBrokers::Ends(const std::string& topic, uint32_t partition_count) {
  absl::StatusOr<std::vector<uint64_t>> ends = absl::UnknownError("not asked");
  const auto partitions = KafkaTopic{.partition_count = partition_count}.with_leader();
  RequireInTime(
      [&] {
        // The client asks the leaders that it knows, and learns of others by this question only.
        if (!admin_->AskTopics(kAnswerTimeout).ok()) return false;
        ends = admin_->AskOffsets(topic, partitions, KafkaClient::kHigh, kAnswerTimeout);
        return ends.ok();
      },
      absl::StrCat("topic ", topic, " has no leaders"));
  return *ends;
}

}  // namespace hps
