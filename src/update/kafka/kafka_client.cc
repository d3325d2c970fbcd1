#include "update/kafka/kafka_client.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/text.h"

namespace hps {
namespace {

absl::StatusCode CodeOf(rd_kafka_resp_err_t error) {
  switch (error) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
      return absl::StatusCode::kOk;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
      return absl::StatusCode::kUnavailable;
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
      return absl::StatusCode::kDeadlineExceeded;
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
      return absl::StatusCode::kPermissionDenied;
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR__SSL:
      return absl::StatusCode::kUnauthenticated;
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
      return absl::StatusCode::kNotFound;
    case RD_KAFKA_RESP_ERR__INVALID_ARG:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
      return absl::StatusCode::kInvalidArgument;
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

// librdkafka's levels are syslog's: 3 is an error, 4 a warning. "FAIL" is a lost connection, one of
// many while a broker is away: TakeError logs what matters.
void TakeLogLine(const rd_kafka_t* /*client*/, int level, const char* facility, const char* text) {
  const std::string line = absl::StrCat("Kafka client: ", facility, ": ", PrintableText(text));
  if (level <= 4 && std::string_view(facility) != "FAIL") {
    LogWarning(line);
  } else {
    LogDebug(line);
  }
}

KafkaTopic TopicOf(const rd_kafka_metadata_topic_t& found) {
  KafkaTopic topic{.partition_count = static_cast<uint32_t>(found.partition_cnt)};
  for (const rd_kafka_metadata_partition_t& partition :
       std::span(found.partitions, topic.partition_count)) {
    if (partition.leader < 0) topic.without_leader.push_back(static_cast<uint32_t>(partition.id));
  }
  std::sort(topic.without_leader.begin(), topic.without_leader.end());
  return topic;
}

absl::Status Set(rd_kafka_conf_t* conf, const std::string& name, const std::string& value) {
  std::array<char, 512> why{};
  const rd_kafka_conf_res_t result =
      rd_kafka_conf_set(conf, name.c_str(), value.c_str(), why.data(), why.size());
  if (result == RD_KAFKA_CONF_OK) return absl::OkStatus();
  if (result == RD_KAFKA_CONF_UNKNOWN) {
    return absl::InvalidArgumentError(absl::StrCat("Kafka setting '", name, "' is unknown"));
  }
  // librdkafka's own text has the value in it, which may be a secret.
  return absl::InvalidArgumentError(
      absl::StrCat("Kafka setting '", name, "': librdkafka does not take this value"));
}

}  // namespace

int KafkaMilliseconds(Duration timeout) {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return static_cast<int>(std::clamp<int64_t>(count, 0, std::numeric_limits<int>::max()));
}

uint32_t ProducerPartitions(const rd_kafka_message_t& message) {
  rd_kafka_headers_t* headers = nullptr;
  const void* value = nullptr;
  size_t size = 0;
  if (rd_kafka_message_headers(&message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
      rd_kafka_header_get_last(headers, kPartitionsHeader, &value, &size) !=
          RD_KAFKA_RESP_ERR_NO_ERROR ||
      size != sizeof(uint32_t)) {
    return 0;
  }
  return LoadLittleEndian<uint32_t>(value);
}

absl::Status KafkaStatus(rd_kafka_resp_err_t error, std::string_view what, std::string_view why) {
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return absl::OkStatus();
  const std::string_view reason = why.empty() ? rd_kafka_err2str(error) : why;
  return {CodeOf(error),
          absl::StrCat(absl::string_view(what.data(), what.size()), ": ", PrintableText(reason))};
}

absl::StatusOr<std::unique_ptr<KafkaClient>> KafkaClient::Make(Options options) {
  if (options.brokers.empty()) {
    return absl::InvalidArgumentError("no Kafka brokers are given: expected host:port,...");
  }
  std::unique_ptr<KafkaClient> client(new KafkaClient(std::move(options)));
  rd_kafka_conf_t* const conf = rd_kafka_conf_new();
  if (absl::Status status = client->Configure(conf); !status.ok()) {
    rd_kafka_conf_destroy(conf);
    return status;
  }
  std::array<char, 512> why{};
  client->handle_.reset(rd_kafka_new(client->options_.type, conf, why.data(), why.size()));
  if (client->handle_ == nullptr) {
    rd_kafka_conf_destroy(conf);  // it was not taken
    return absl::InvalidArgumentError(absl::StrCat("Kafka settings: ", PrintableText(why.data())));
  }
  return client;
}

absl::Status KafkaClient::Configure(rd_kafka_conf_t* conf) {
  KafkaSettings::Map settings = options_.fixed;
  settings.emplace("bootstrap.servers", options_.brokers);
  settings.insert(options_.settings.values().begin(), options_.settings.values().end());
  settings.insert(options_.defaults.begin(), options_.defaults.end());
  for (const auto& [name, value] : settings) HPS_RETURN_IF_ERROR(Set(conf, name, value));
  rd_kafka_conf_set_opaque(conf, this);
  rd_kafka_conf_set_log_cb(conf, TakeLogLine);
  rd_kafka_conf_set_error_cb(conf, [](rd_kafka_t*, int error, const char* why, void* self) {
    static_cast<KafkaClient*>(self)->TakeError(static_cast<rd_kafka_resp_err_t>(error), why);
  });
  if (options_.on_delivery) {
    rd_kafka_conf_set_dr_msg_cb(conf,
                                [](rd_kafka_t*, const rd_kafka_message_t* message, void* self) {
                                  static_cast<KafkaClient*>(self)->options_.on_delivery(*message);
                                });
  }
  return absl::OkStatus();
}

void KafkaClient::TakeError(rd_kafka_resp_err_t error, std::string_view why) {
  const absl::Status status = KafkaStatus(error, "Kafka brokers " + options_.brokers, why);
  // One missing broker of several is not an error of the stream.
  if (status.code() == absl::StatusCode::kUnavailable &&
      error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    return;
  }
  LogWarning(std::string(status.message()));
  MutexLock lock(mutex_);
  if (health_.ok() || status.code() != absl::StatusCode::kUnavailable) health_ = status;
}

absl::Status KafkaClient::health() const {
  MutexLock lock(mutex_);
  return health_;
}

void KafkaClient::SetHealthy() {
  MutexLock lock(mutex_);
  health_ = absl::OkStatus();
}

std::vector<uint32_t> KafkaTopic::with_leader() const {
  std::vector<uint32_t> partitions;
  for (uint32_t i = 0; i < partition_count; ++i) {
    if (!std::binary_search(without_leader.begin(), without_leader.end(), i))
      partitions.push_back(i);
  }
  return partitions;
}

absl::StatusOr<std::map<std::string, KafkaTopic>> KafkaClient::AskTopics(Duration timeout) {
  const rd_kafka_metadata_t* found = nullptr;
  // All topics: a question for one would create it on brokers that do that.
  const rd_kafka_resp_err_t error =
      rd_kafka_metadata(handle(), 1, nullptr, &found, KafkaMilliseconds(timeout));
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    absl::Status status =
        KafkaStatus(error, "Kafka brokers " + options_.brokers + " can't be asked for topics");
    const absl::Status known = health();
    return known.ok() ? status : known;
  }
  SetHealthy();
  std::map<std::string, KafkaTopic> topics;
  for (const rd_kafka_metadata_topic_t& topic :
       std::span(found->topics, static_cast<size_t>(found->topic_cnt))) {
    if (topic.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) continue;
    KafkaTopic& known = topics[topic.topic];
    if (topic.err == RD_KAFKA_RESP_ERR_NO_ERROR) known = TopicOf(topic);
  }
  rd_kafka_metadata_destroy(found);
  return topics;
}

absl::StatusOr<std::vector<uint64_t>> KafkaClient::AskOffsets(const std::string& topic,
                                                              std::span<const uint32_t> partitions,
                                                              int64_t time_ms, Duration timeout) {
  const std::string what = absl::StrCat("topic '", topic, "': its offsets can't be asked for");
  const KafkaPartitionList list = NewKafkaPartitionList(partitions.size());
  for (const uint32_t partition : partitions) {
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), static_cast<int32_t>(partition))
        ->offset = time_ms;
  }
  if (partitions.empty()) return std::vector<uint64_t>();
  HPS_RETURN_IF_ERROR(KafkaStatus(
      rd_kafka_offsets_for_times(handle(), list.get(), KafkaMilliseconds(timeout)), what));
  std::vector<uint64_t> offsets(partitions.size());
  for (const rd_kafka_topic_partition_t& answer : PartitionsOf(list)) {
    HPS_RETURN_IF_ERROR(KafkaStatus(answer.err, what));
    const auto found =
        std::find(partitions.begin(), partitions.end(), static_cast<uint32_t>(answer.partition));
    if (found == partitions.end())
      return absl::InternalError(absl::StrCat(what, ": partition ", answer.partition));
    offsets[static_cast<size_t>(found - partitions.begin())] =
        answer.offset < 0 ? kNoOffset : static_cast<uint64_t>(answer.offset);
  }
  return offsets;
}

}  // namespace hps
