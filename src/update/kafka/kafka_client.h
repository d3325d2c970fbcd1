// The parts of librdkafka that both producer and source use: making a client, its errors as
// absl::Status, its log lines in our log, and questions to the brokers.
#pragma once

#include <librdkafka/rdkafka.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "update/kafka_settings.h"

namespace hps {

// The header of a record: the number of partitions that its producer distributes keys over, as
// four little-endian bytes.
inline constexpr char kPartitionsHeader[] = "hps-partitions";

// What the header says; 0: there is none, or it is no such number.
uint32_t ProducerPartitions(const rd_kafka_message_t& message);

// `what` is the beginning of the message: what failed, on what.
absl::Status KafkaStatus(rd_kafka_resp_err_t error, std::string_view what,
                         std::string_view why = {});

// Whether an operator has to act: credentials or permissions.
inline bool NeedsAnOperator(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

// As librdkafka takes time-outs: rounded up, 0 for what has passed.
int KafkaMilliseconds(Duration timeout);

struct KafkaClose {
  void operator()(rd_kafka_t* client) const { rd_kafka_destroy(client); }
  void operator()(rd_kafka_topic_t* topic) const { rd_kafka_topic_destroy(topic); }
  void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
  void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
  void operator()(rd_kafka_topic_partition_list_t* list) const {
    rd_kafka_topic_partition_list_destroy(list);
  }
};
using KafkaPartitionList = std::unique_ptr<rd_kafka_topic_partition_list_t, KafkaClose>;
using KafkaQueue = std::unique_ptr<rd_kafka_queue_t, KafkaClose>;
using KafkaMessage = std::unique_ptr<rd_kafka_message_t, KafkaClose>;

inline KafkaPartitionList NewKafkaPartitionList(size_t room = 0) {
  return KafkaPartitionList(rd_kafka_topic_partition_list_new(static_cast<int>(room)));
}
inline std::span<rd_kafka_topic_partition_t> PartitionsOf(const KafkaPartitionList& list) {
  return {list->elems, static_cast<size_t>(list->cnt)};
}

// The brokers' answer about a topic.
struct KafkaTopic {
  uint32_t partition_count = 0;            // 0 = the brokers can't say it now
  std::vector<uint32_t> without_leader{};  // ascending

  // Partitions that have a leader, ascending.
  std::vector<uint32_t> with_leader() const;
};

// Thread-safe.
class KafkaClient {
 public:
  struct Options {
    rd_kafka_type_t type = RD_KAFKA_CONSUMER;
    std::string brokers;
    KafkaSettings settings{};  // these win over `defaults`
    KafkaSettings::Map defaults{};
    KafkaSettings::Map fixed{};  // these win over everything
    // Called for every message that was delivered or failed, by the thread that calls Serve.
    std::function<void(const rd_kafka_message_t&)> on_delivery{};
  };

  // Does not connect yet. Errors: INVALID_ARGUMENT: a setting, or no brokers.
  static absl::StatusOr<std::unique_ptr<KafkaClient>> Make(Options options);

  KafkaClient(const KafkaClient&) = delete;
  KafkaClient& operator=(const KafkaClient&) = delete;

  rd_kafka_t* handle() const { return handle_.get(); }

  // OK, or why no broker can be asked: UNAVAILABLE, or what an operator has to mend
  // (UNAUTHENTICATED). A broker that answers makes it OK again.
  absl::Status health() const;
  void SetHealthy();

  // All topics that the client may see, by name. Never creates a topic.
  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED, PERMISSION_DENIED.
  absl::StatusOr<std::map<std::string, KafkaTopic>> AskTopics(Duration timeout);

  // Offsets of partitions of a topic, in their order: the first for kLow, the end for kHigh, else
  // the first record of that time (ms since 1970) or later; kNoOffset where there is none. One
  // partition without a leader makes the whole question wait and fail.
  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED.
  static constexpr int64_t kHigh = -1;
  static constexpr int64_t kLow = -2;
  static constexpr uint64_t kNoOffset = UINT64_MAX;
  absl::StatusOr<std::vector<uint64_t>> AskOffsets(const std::string& topic,
                                                   std::span<const uint32_t> partitions,
                                                   int64_t time_ms, Duration timeout);

 private:
  explicit KafkaClient(Options options) : options_(std::move(options)) {}
  absl::Status Configure(rd_kafka_conf_t* conf);
  void TakeError(rd_kafka_resp_err_t error, std::string_view why);

  const Options options_;
  mutable Mutex mutex_;
  absl::Status health_ HPS_GUARDED_BY(mutex_);
  std::unique_ptr<rd_kafka_t, KafkaClose> handle_;
};

}  // namespace hps
