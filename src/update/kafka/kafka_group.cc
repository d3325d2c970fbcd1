#include "update/kafka/kafka_group.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "update/update_message.h"

namespace hps {
namespace {

KafkaClient::Options ClientOptions(const SharedGroupOptions& options) {
  const size_t prefetch_kbytes = std::max<size_t>(options.prefetch_bytes_max >> 10, 1);
  return {.type = RD_KAFKA_CONSUMER,
          .brokers = options.brokers,
          .settings = options.settings,
          // A node that ends without a word is replaced after this session time-out.
          .defaults = {{"session.timeout.ms", "10000"},
                       {"heartbeat.interval.ms", "1000"},
                       {"queued.max.messages.kbytes", absl::StrCat(prefetch_kbytes)},
                       {"fetch.wait.max.ms", "100"},
                       {"fetch.error.backoff.ms", "50"},
                       {"topic.metadata.refresh.interval.ms", "5000"},
                       {"reconnect.backoff.max.ms", "1000"}},
          .fixed = {{"group.id", options.group},
                    {"enable.auto.commit", "false"},
                    {"enable.auto.offset.store", "false"},
                    {"auto.offset.reset", "latest"},
                    {"check.crcs", "true"},
                    {"allow.auto.create.topics", "false"}}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedGroup>> MakeKafkaGroup(const SharedGroupOptions& options) {
  return KafkaGroup::Make(options);
}

absl::StatusOr<std::unique_ptr<SharedGroup>> KafkaGroup::Make(const SharedGroupOptions& options) {
  std::unique_ptr<KafkaGroup> group(new KafkaGroup(options));
  HPS_ASSIGN_OR_RETURN(group->client_, KafkaClient::Make(ClientOptions(options)));
  HPS_RETURN_IF_ERROR(group->Join());
  return group;
}

absl::Status KafkaGroup::Join() {
  HPS_RETURN_IF_ERROR(KafkaStatus(rd_kafka_poll_set_consumer(client_->handle()), "Kafka consumer"));
  if (tables_.empty()) return absl::OkStatus();
  const KafkaPartitionList topics = NewKafkaPartitionList(tables_.size());
  for (const std::string& table : tables_) {
    rd_kafka_topic_partition_list_add(topics.get(), UpdateTopic(table).c_str(),
                                      RD_KAFKA_PARTITION_UA);
  }
  return KafkaStatus(rd_kafka_subscribe(client_->handle(), topics.get()),
                     "the shared group can't be joined");
}

KafkaGroup::~KafkaGroup() {
  if (client_ != nullptr) rd_kafka_consumer_close(client_->handle());
}

absl::StatusOr<std::vector<UpdateRecord>> KafkaGroup::Poll(size_t records_max, Deadline deadline) {
  std::vector<UpdateRecord> records;
  while (records.size() < records_max) {
    const Duration left = deadline - RealClock().Now();
    const int wait_ms = records.empty() ? KafkaMilliseconds(left) : 0;
    KafkaMessage message(rd_kafka_consumer_poll(client_->handle(), wait_ms));
    if (message == nullptr) break;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      const absl::Status error = KafkaStatus(message->err, "the shared group of the update stream");
      if (NeedsAnOperator(error)) return error;
      continue;  // of a topic that is missing, or of brokers that are away
    }
    const std::optional<std::string> table = TableOfTopic(rd_kafka_topic_name(message->rkt));
    const auto known = table.has_value() ? tables_.find(*table) : tables_.end();
    if (known == tables_.end()) continue;
    UpdateRecord record;
    record.table = *known;
    record.position = {.partition = static_cast<uint32_t>(message->partition),
                       .generation = 0,
                       .offset = static_cast<uint64_t>(message->offset)};
    record.partition_count = ProducerPartitions(*message);
    record.payload = {static_cast<const std::byte*>(message->payload), message->len};
    record.owner = UpdateRecord::Owner(message.release(), [](void* owned) {
      rd_kafka_message_destroy(static_cast<rd_kafka_message_t*>(owned));
    });
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<std::pair<std::string, uint32_t>> KafkaGroup::Owned() {
  std::vector<std::pair<std::string, uint32_t>> owned;
  rd_kafka_topic_partition_list_t* found = nullptr;
  if (rd_kafka_assignment(client_->handle(), &found) != RD_KAFKA_RESP_ERR_NO_ERROR) return owned;
  const KafkaPartitionList list(found);
  for (const rd_kafka_topic_partition_t& partition : PartitionsOf(list)) {
    if (const std::optional<std::string> table = TableOfTopic(partition.topic))
      owned.emplace_back(*table, static_cast<uint32_t>(partition.partition));
  }
  std::ranges::sort(owned);
  return owned;
}

void KafkaGroup::Commit(const std::string& table, std::span<const StreamPosition> positions) {
  const KafkaPartitionList list = NewKafkaPartitionList(positions.size());
  const std::string topic = UpdateTopic(table);
  for (const StreamPosition& position : positions) {
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(),
                                      static_cast<int32_t>(position.partition))
        ->offset = static_cast<int64_t>(position.offset);
  }
  rd_kafka_commit(client_->handle(), list.get(), /*async=*/1);
}

}  // namespace hps
