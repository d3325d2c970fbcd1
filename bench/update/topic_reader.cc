#include "bench/update/topic_reader.h"

#include <chrono>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/update/progress_clock.h"
#include "update/kafka/kafka_client.h"

namespace hps::bench {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(10);

absl::StatusOr<std::unique_ptr<KafkaClient>> MakeConsumer(const std::string& brokers) {
  return KafkaClient::Make({.type = RD_KAFKA_CONSUMER,
                            .brokers = brokers,
                            .defaults = {{"queued.max.messages.kbytes", "32768"},
                                         {"fetch.max.bytes", "33554432"},
                                         {"fetch.wait.max.ms", "100"},
                                         {"fetch.error.backoff.ms", "50"}},
                            .fixed = {{"group.id", "hps-bench"},
                                      {"enable.auto.commit", "false"},
                                      {"enable.auto.offset.store", "false"},
                                      {"auto.offset.reset", "error"},
                                      {"check.crcs", "true"},
                                      {"allow.auto.create.topics", "false"}}});
}

}  // namespace

absl::Status CheckKafka() { return absl::OkStatus(); }

absl::StatusOr<std::vector<uint64_t>> TopicEnds(const std::string& brokers,
                                                const std::string& topic) {
  HPS_ASSIGN_OR_RETURN(const auto client, MakeConsumer(brokers));
  HPS_ASSIGN_OR_RETURN(const auto topics, client->AskTopics(kAnswerTimeout));
  const auto found = topics.find(topic);
  if (found == topics.end() || found->second.partition_count == 0) {
    return absl::NotFoundError(absl::StrCat("Kafka brokers ", brokers, " have no topic '", topic,
                                            "': create it, or run tools/bench_updates.py"));
  }
  std::vector<uint32_t> partitions(found->second.partition_count);
  std::iota(partitions.begin(), partitions.end(), 0);
  return client->AskOffsets(topic, partitions, KafkaClient::kHigh, kAnswerTimeout);
}

absl::StatusOr<double> ReadAndDiscard(const std::string& brokers, const TopicRange& range) {
  HPS_ASSIGN_OR_RETURN(const auto client, MakeConsumer(brokers));
  const KafkaPartitionList list = NewKafkaPartitionList(range.begins.size());
  uint64_t left = 0;
  for (size_t i = 0; i < range.begins.size(); ++i) {
    rd_kafka_topic_partition_list_add(list.get(), range.topic.c_str(), static_cast<int32_t>(i))
        ->offset = static_cast<int64_t>(range.begins[i]);
    left += range.ends[i] - range.begins[i];
  }
  const std::string what = absl::StrCat("topic '", range.topic, "'");
  HPS_RETURN_IF_ERROR(KafkaStatus(rd_kafka_poll_set_consumer(client->handle()), what));
  HPS_RETURN_IF_ERROR(KafkaStatus(rd_kafka_assign(client->handle(), list.get()), what));
  const uint64_t total = left;
  ProgressClock clock(total);
  for (; left > 0; --left) {
    const KafkaMessage message(
        rd_kafka_consumer_poll(client->handle(), KafkaMilliseconds(kAnswerTimeout)));
    if (message == nullptr) {
      return absl::DeadlineExceededError(absl::StrCat(what, ": ", left, " records did not come"));
    }
    HPS_RETURN_IF_ERROR(KafkaStatus(message->err, what));
    clock.Note(total - left + 1);
  }
  rd_kafka_consumer_close(client->handle());
  return clock.share_per_second();
}

}  // namespace hps::bench
