// UpdateProducer on librdkafka.
//
// Rows are collected in one open message per partition, which is sent when it is full, when it
// would get a change of the other kind, after `linger`, or by Flush. A thread of the producer
// receives what became of the messages, sends what lingers, and looks every second whether the
// topic still has the number of partitions that it began with.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/step_thread.h"
#include "hps/update_producer.h"
#include "update/kafka/kafka_client.h"
#include "update/update_message.h"

namespace hps {

class KafkaProducer final : public UpdateProducer {
 public:
  static absl::StatusOr<std::unique_ptr<UpdateProducer>> Make(const UpdateProducerOptions& options);

  KafkaProducer(const KafkaProducer&) = delete;
  KafkaProducer& operator=(const KafkaProducer&) = delete;
  ~KafkaProducer() override;

  absl::Status Upsert(std::span<const Key> keys, std::span<const std::byte> rows,
                      std::chrono::milliseconds timeout) override;
  absl::Status Delete(std::span<const Key> keys, std::chrono::milliseconds timeout) override;
  absl::Status Flush(std::chrono::milliseconds timeout) override;
  uint32_t partition_count() const override { return static_cast<uint32_t>(open_.size()); }
  UpdateProducerStatistics Statistics() const override;

 private:
  // What is collected for one partition.
  struct OpenMessage {
    UpdateKind kind = UpdateKind::kUpsert;
    int64_t publish_time_us = 0;
    TimePoint opened{};
    std::vector<Key> keys{};
    std::vector<std::byte> rows{};
  };
  // Messages that were not delivered since the last Flush.
  struct Failures {
    absl::Status first;
    uint64_t messages = 0;
    uint64_t rows = 0;
  };
  // On its way: librdkafka holds it as the message's opaque.
  struct SentMessage {
    UpdateKind kind = UpdateKind::kUpsert;
    std::vector<Key> keys;
    std::vector<std::byte> payload;

    size_t memory_bytes() const { return payload.size() + keys.size() * sizeof(Key); }
  };

  explicit KafkaProducer(const UpdateProducerOptions& options) : options_(options) {}
  absl::Status Connect();
  absl::Status Add(UpdateKind kind, std::span<const Key> keys, std::span<const std::byte> rows,
                   Deadline deadline);
  absl::Status Send(uint32_t partition, Deadline deadline) HPS_REQUIRES(mutex_);
  absl::Status Produce(uint32_t partition, SentMessage* message);
  absl::Status WaitForRoom(size_t bytes, Deadline deadline) HPS_REQUIRES(mutex_);
  absl::Status TakeFailures() HPS_REQUIRES(mutex_);
  void TakeDelivery(const rd_kafka_message_t& message);
  Duration Serve();
  void SendLingering() HPS_EXCLUDES(mutex_);
  void CheckPartitionCount();

  const UpdateProducerOptions options_;
  const std::string topic_ = UpdateTopic(options_.table.name);
  size_t keys_max_ = 0;     // of a message with rows
  size_t deletes_max_ = 0;  // of a message of deletes
  std::unique_ptr<KafkaClient> client_;

  mutable Mutex mutex_;
  CondVar delivered_;
  std::vector<OpenMessage> open_;  // by partition; its size never changes
  UpdateProducerStatistics counts_ HPS_GUARDED_BY(mutex_);
  size_t messages_sent_ HPS_GUARDED_BY(mutex_) = 0;  // and neither delivered nor failed
  // Why no more is taken: another number of partitions, a deleted topic, a fatal error.
  absl::Status ended_ HPS_GUARDED_BY(mutex_);
  Failures failures_ HPS_GUARDED_BY(mutex_);

  TimePoint next_check_{};  // of the thread
  StepThread thread_;
};

}  // namespace hps
