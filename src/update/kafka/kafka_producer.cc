#include "update/kafka/kafka_producer.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/unix_time.h"

namespace hps {
namespace {

constexpr size_t kMessageBytesMin = size_t{32} << 10;
constexpr size_t kRequestOverheadBytes = 4096;  // of a record with its header, generously
constexpr auto kCheckEvery = std::chrono::seconds(1);
constexpr auto kServeEvery = std::chrono::milliseconds(10);
constexpr auto kTopicWaitMax = std::chrono::seconds(10);
constexpr auto kTopicPause = std::chrono::milliseconds(100);

absl::Status CheckOptions(const UpdateProducerOptions& options) {
  HPS_RETURN_IF_ERROR(ValidateTableSpec(options.table));
  if (options.message_bytes < kMessageBytesMin || options.message_bytes > kUpdateMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("message_bytes is ", options.message_bytes,
                                                   ", expected ", kMessageBytesMin, " to ",
                                                   kUpdateMessageBytesMax));
  }
  if (options.memory_bytes_max < 2 * options.message_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("memory_bytes_max is ", options.memory_bytes_max,
                                                   ", expected at least two messages of ",
                                                   options.message_bytes, " bytes"));
  }
  return absl::OkStatus();
}

KafkaClient::Options ClientOptions(const UpdateProducerOptions& options, KafkaSettings settings) {
  const std::string timeout_ms =
      absl::StrCat(std::max<int64_t>(options.delivery_timeout.count(), 1));
  return {.type = RD_KAFKA_PRODUCER,
          .brokers = options.brokers,
          .settings = std::move(settings),
          .defaults = {{"linger.ms", "5"},
                       {"message.max.bytes",
                        absl::StrCat(std::max<size_t>(
                            1'000'000, options.message_bytes + kRequestOverheadBytes))}},
          .fixed = {{"enable.idempotence", "true"},
                    {"acks", "all"},
                    {"delivery.timeout.ms", timeout_ms},
                    // The producer's own limit holds.
                    {"queue.buffering.max.messages", "10000000"},
                    {"queue.buffering.max.kbytes", "2147483647"}}};
}

absl::StatusOr<uint32_t> AskPartitions(KafkaClient& client, const UpdateProducerOptions& options,
                                       const std::string& topic) {
  HPS_ASSIGN_OR_RETURN(const auto topics, client.AskTopics(options.connect_timeout));
  const auto found = topics.find(topic);
  if (found == topics.end()) {
    return absl::NotFoundError(absl::StrCat("topic '", topic, "' of table '", options.table.name,
                                            "' does not exist on ", options.brokers,
                                            ": create it with the partitions that it is to have"));
  }
  if (found->second.partition_count == 0)
    return absl::UnavailableError(absl::StrCat("topic '", topic, "' has no leader now"));
  return found->second.partition_count;
}

// The number of partitions. A broker that has just started knows no topics, or no leaders, for a
// moment: what it says then is not believed at once.
absl::StatusOr<uint32_t> AwaitPartitions(KafkaClient& client, const UpdateProducerOptions& options,
                                         const std::string& topic) {
  const Deadline deadline =
      DeadlineAfter(RealClock(), std::min<Duration>(options.connect_timeout, kTopicWaitMax));
  for (;;) {
    const absl::StatusOr<uint32_t> partitions = AskPartitions(client, options, topic);
    const bool may_change =
        absl::IsNotFound(partitions.status()) || absl::IsUnavailable(partitions.status());
    if (!may_change || RealClock().Now() >= deadline) return partitions;
    rd_kafka_poll(client.handle(), KafkaMilliseconds(kTopicPause));  // its events, meanwhile
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateProducer>> UpdateProducer::Create(
    const UpdateProducerOptions& options) {
  return KafkaProducer::Make(options);
}

absl::StatusOr<std::unique_ptr<UpdateProducer>> KafkaProducer::Make(
    const UpdateProducerOptions& options) {
  HPS_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<KafkaProducer> producer(new KafkaProducer(options));
  HPS_RETURN_IF_ERROR(producer->Connect());
  return producer;
}

absl::Status KafkaProducer::Connect() {
  HPS_ASSIGN_OR_RETURN(KafkaSettings settings, KafkaSettings::Make(options_.kafka));
  HPS_RETURN_IF_ERROR(settings.CheckSecretFiles(std::nullopt));
  KafkaClient::Options client_options = ClientOptions(options_, std::move(settings));
  client_options.on_delivery = [this](const rd_kafka_message_t& message) { TakeDelivery(message); };
  HPS_ASSIGN_OR_RETURN(client_, KafkaClient::Make(std::move(client_options)));
  HPS_ASSIGN_OR_RETURN(const uint32_t partitions, AwaitPartitions(*client_, options_, topic_));
  MutexLock lock(mutex_);
  open_.resize(partitions);
  keys_max_ = UpdateKeysIn(options_.table, UpdateKind::kUpsert, options_.message_bytes);
  deletes_max_ = UpdateKeysIn(options_.table, UpdateKind::kDelete, options_.message_bytes);
  HPS_CHECK(keys_max_ > 0 && deletes_max_ > 0);
  next_check_ = RealClock().Now() + kCheckEvery;
  const absl::Status started = thread_.Start("hps-produce", [this] { return Serve(); });
  if (started.ok()) return started;
  return {started.code(),
          absl::StrCat("the producer's thread can't be started: ", started.message())};
}

KafkaProducer::~KafkaProducer() {
  thread_.End();
  if (client_ == nullptr) return;
  // Every message that is left is given back.
  rd_kafka_purge(client_->handle(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  while (rd_kafka_outq_len(client_->handle()) > 0) rd_kafka_poll(client_->handle(), 100);
}

absl::Status KafkaProducer::Upsert(std::span<const Key> keys, std::span<const std::byte> rows,
                                   std::chrono::milliseconds timeout) {
  if (rows.size() != keys.size() * options_.table.row_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table '", options_.table.name, "': ", keys.size(), " rows of ",
                     options_.table.row_bytes(), " bytes expected, found ", rows.size(), " bytes"));
  }
  return Add(UpdateKind::kUpsert, keys, rows, DeadlineAfter(RealClock(), timeout));
}

absl::Status KafkaProducer::Delete(std::span<const Key> keys, std::chrono::milliseconds timeout) {
  return Add(UpdateKind::kDelete, keys, {}, DeadlineAfter(RealClock(), timeout));
}

absl::Status KafkaProducer::Add(UpdateKind kind, std::span<const Key> keys,
                                std::span<const std::byte> rows, Deadline deadline) {
  const size_t row_bytes = kind == UpdateKind::kUpsert ? options_.table.row_bytes() : 0;
  const size_t count_max = kind == UpdateKind::kUpsert ? keys_max_ : deletes_max_;
  MutexLock lock(mutex_);
  HPS_RETURN_IF_ERROR(ended_);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t partition = UpdatePartition(keys[i], partition_count());
    OpenMessage& open = open_[partition];
    // Another thread may fill it while this one waits to send it.
    while (!open.keys.empty() && (open.kind != kind || open.keys.size() >= count_max)) {
      HPS_RETURN_IF_ERROR(Send(partition, deadline));
    }
    if (open.keys.empty()) {
      open.kind = kind;
      open.publish_time_us = UnixMicroseconds();
      open.opened = RealClock().Now();
    }
    open.keys.push_back(keys[i]);
    const auto row = rows.subspan(i * row_bytes, row_bytes);
    open.rows.insert(open.rows.end(), row.begin(), row.end());
    ++counts_.rows;
  }
  return absl::OkStatus();
}

// Messages that are open have no part in the limit: there is one for each partition.
absl::Status KafkaProducer::WaitForRoom(size_t bytes, Deadline deadline) {
  while (ended_.ok() && counts_.memory_bytes > 0 &&
         counts_.memory_bytes + bytes > options_.memory_bytes_max) {
    if (RealClock().Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("topic '", topic_, "': ", counts_.memory_bytes, " bytes of ", messages_sent_,
                       " messages are not delivered yet"));
    }
    delivered_.WaitUntil(mutex_, deadline);
  }
  return ended_;
}

absl::Status KafkaProducer::Send(uint32_t partition, Deadline deadline) {
  const size_t bytes =
      EncodedUpdateBytes(options_.table, open_[partition].kind, open_[partition].keys.size());
  HPS_RETURN_IF_ERROR(WaitForRoom(bytes + open_[partition].keys.size() * sizeof(Key), deadline));
  OpenMessage& open = open_[partition];
  if (open.keys.empty()) return absl::OkStatus();  // sent while this thread waited
  auto message = std::make_unique<SentMessage>();
  message->kind = open.kind;
  message->payload.resize(EncodedUpdateBytes(options_.table, open.kind, open.keys.size()));
  EncodeUpdate(options_.table,
               {.kind = open.kind,
                .publish_time_us = open.publish_time_us,
                .keys = open.keys,
                .rows = open.rows},
               message->payload);
  message->keys = std::move(open.keys);
  open.keys.clear();
  open.rows.clear();
  const size_t memory_bytes = message->memory_bytes();
  if (absl::Status status = Produce(partition, message.get()); !status.ok()) {
    ended_ = status;
    return status;
  }
  message.release();  // NOLINT(bugprone-unused-return-value): TakeDelivery frees it
  ++messages_sent_;
  counts_.memory_bytes += memory_bytes;
  return absl::OkStatus();
}

absl::Status KafkaProducer::Produce(uint32_t partition, SentMessage* message) {
  std::array<std::byte, sizeof(uint32_t)> count{};
  StoreLittleEndian<uint32_t>(count.data(), partition_count());
  std::array<rd_kafka_vu_t, 5> values{};
  values[0].vtype = RD_KAFKA_VTYPE_TOPIC;
  values[0].u.cstr = topic_.c_str();
  values[1].vtype = RD_KAFKA_VTYPE_PARTITION;
  values[1].u.i32 = static_cast<int32_t>(partition);
  values[2].vtype = RD_KAFKA_VTYPE_VALUE;
  values[2].u.mem = {.ptr = message->payload.data(), .size = message->payload.size()};
  values[3].vtype = RD_KAFKA_VTYPE_HEADER;
  values[3].u.header = {
      .name = kPartitionsHeader, .val = count.data(), .size = static_cast<ssize_t>(count.size())};
  values[4].vtype = RD_KAFKA_VTYPE_OPAQUE;
  values[4].u.ptr = message;
  rd_kafka_error_t* const error =
      rd_kafka_produceva(client_->handle(), values.data(), values.size());
  if (error == nullptr) return absl::OkStatus();
  absl::Status status = KafkaStatus(rd_kafka_error_code(error),
                                    absl::StrCat("topic '", topic_, "': a message can't be sent"),
                                    rd_kafka_error_string(error));
  rd_kafka_error_destroy(error);
  return status;
}

void KafkaProducer::TakeDelivery(const rd_kafka_message_t& report) {
  const std::unique_ptr<SentMessage> message(static_cast<SentMessage*>(report._private));
  absl::Status status =
      KafkaStatus(report.err, absl::StrCat("topic '", topic_, "', partition ", report.partition,
                                           ": a message was not delivered"));
  if (options_.on_delivery) {
    options_.on_delivery({.status = status,
                          .partition = static_cast<uint32_t>(report.partition),
                          .offset = status.ok() ? report.offset : -1,
                          .is_delete = message->kind == UpdateKind::kDelete,
                          .keys = message->keys});
  }
  MutexLock lock(mutex_);
  counts_.memory_bytes -= message->memory_bytes();
  --messages_sent_;
  if (status.ok()) {
    ++counts_.messages_delivered;
    counts_.rows_delivered += message->keys.size();
    counts_.bytes_delivered += message->payload.size();
  } else {
    ++counts_.messages_failed;
    ++failures_.messages;
    counts_.rows_failed += message->keys.size();
    failures_.rows += message->keys.size();
    failures_.first.Update(std::move(status));
  }
  delivered_.NotifyAll();
}

absl::Status KafkaProducer::TakeFailures() {
  const Failures failures = std::exchange(failures_, {});
  if (failures.messages == 0) return absl::OkStatus();
  return {failures.first.code(),
          absl::StrCat(std::string(failures.first.message()), " (", failures.messages,
                       " messages with ", failures.rows, " rows failed)")};
}

absl::Status KafkaProducer::Flush(std::chrono::milliseconds timeout) {
  const Deadline deadline = DeadlineAfter(RealClock(), timeout);
  MutexLock lock(mutex_);
  HPS_RETURN_IF_ERROR(ended_);
  for (uint32_t i = 0; i < partition_count(); ++i) {
    if (!open_[i].keys.empty()) HPS_RETURN_IF_ERROR(Send(i, deadline));
  }
  while (messages_sent_ > 0 && ended_.ok()) {
    if (RealClock().Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("topic '", topic_, "': ", messages_sent_,
                                                      " messages are not delivered yet"));
    }
    delivered_.WaitUntil(mutex_, deadline);
  }
  HPS_RETURN_IF_ERROR(ended_);
  return TakeFailures();
}

UpdateProducerStatistics KafkaProducer::Statistics() const {
  MutexLock lock(mutex_);
  return counts_;
}

// Waits in librdkafka.
Duration KafkaProducer::Serve() {
  rd_kafka_poll(client_->handle(), static_cast<int>(kServeEvery.count()));
  SendLingering();
  if (RealClock().Now() >= next_check_) {
    CheckPartitionCount();
    next_check_ = RealClock().Now() + kCheckEvery;
  }
  return {};
}

void KafkaProducer::SendLingering() {
  MutexLock lock(mutex_);
  const TimePoint now = RealClock().Now();
  for (uint32_t i = 0; i < partition_count(); ++i) {
    if (!ended_.ok()) return;
    if (open_[i].keys.empty() || now - open_[i].opened < options_.linger) continue;
    // Does not wait for room: only this thread makes room, by serving deliveries.
    if (absl::Status status = Send(i, now); !status.ok()) return;
  }
}

// Blocks for as long as the brokers need; they answer within milliseconds, or not at all.
void KafkaProducer::CheckPartitionCount() {
  std::array<char, 512> why{};
  absl::Status status =
      KafkaStatus(rd_kafka_fatal_error(client_->handle(), why.data(), why.size()),
                  absl::StrCat("topic '", topic_, "': the producer has failed"), why.data());
  const auto topics = client_->AskTopics(kCheckEvery);
  if (status.ok() && topics.ok()) {
    const auto found = topics->find(topic_);
    if (found == topics->end()) {
      status = absl::NotFoundError(absl::StrCat("topic '", topic_, "' was deleted"));
    } else if (const uint32_t count = found->second.partition_count;
               count != 0 && count != partition_count()) {
      status = absl::FailedPreconditionError(absl::StrCat(
          "topic '", topic_, "' has ", count, " partitions now, ", partition_count(),
          " when the producer began: make a new producer once every node has seen it"));
    }
  }
  if (status.ok()) return;
  MutexLock lock(mutex_);
  if (ended_.ok()) ended_ = std::move(status);
  delivered_.NotifyAll();
}

}  // namespace hps
