// UpdateSource on librdkafka.
//
// The partitions that the trackers want are assigned to one consumer, each from a position of ours;
// a partition that is paused or held back is taken out of the assignment and put back later, so no
// position is ever librdkafka's. (Its pause skips records in some versions: 2.0.2 loses offsets
// when batches are consumed.) A TopicWatcher asks the brokers, so that Poll waits for records only.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "update/kafka/kafka_client.h"
#include "update/kafka/message_arrival.h"
#include "update/kafka/record_limits.h"
#include "update/kafka/topic_watcher.h"
#include "update/kafka_source_options.h"
#include "update/topic_tracker.h"
#include "update/update_source.h"

namespace hps {

class KafkaSource final : public UpdateSource {
 public:
  static absl::StatusOr<std::unique_ptr<UpdateSource>> Make(const KafkaSourceOptions& options);

  KafkaSource(const KafkaSource&) = delete;
  KafkaSource& operator=(const KafkaSource&) = delete;
  ~KafkaSource() override;

  absl::Status Subscribe(const UpdateSubscription& subscription) override;
  absl::Status Unsubscribe(std::string_view table) override;
  absl::StatusOr<UpdateBatch> Poll(Deadline deadline) override;
  absl::Status SetPaused(std::string_view table, uint32_t partition, bool is_paused) override;
  absl::Status CommitHint(std::string_view table,
                          std::span<const StreamPosition> positions) override;
  absl::StatusOr<std::vector<StreamPosition>> Committed(std::string_view table,
                                                        Deadline deadline) override;
  UpdateSourceStatistics Statistics() const override;

 private:
  struct Topic {
    explicit Topic(const UpdateSubscription& subscription) : tracker(subscription) {}

    TopicTracker tracker;
    uint64_t asked = 0;  // the newest question that the watcher has
    // By partition, while it has records that do not come: the offset of the next record, since
    // when that offset has been the next one, and how long it may stay so.
    struct Waiting {
      uint64_t next = UINT64_MAX;
      TimePoint since{};
      Duration patience{};
    };
    std::vector<Waiting> waiting{};
    // By partition: its queue in librdkafka; null if it is not assigned.
    std::vector<KafkaQueue> queues{};
    std::map<uint32_t, StreamPosition> hints{};  // that the brokers do not have yet
  };

  explicit KafkaSource(const KafkaSourceOptions& options) : options_(options), limits_(options) {}

  absl::Status Connect();
  absl::StatusOr<Topic*> Find(std::string_view table) HPS_REQUIRES(mutex_);
  void LearnAnswers() HPS_REQUIRES(mutex_);
  void Follow(const std::string& name, Topic& topic) HPS_REQUIRES(mutex_);
  void Assign(const std::string& name, Topic& topic) HPS_REQUIRES(mutex_);
  void Unassign(const std::string& name, Topic& topic, uint32_t partition) HPS_REQUIRES(mutex_);
  void SendHints() HPS_REQUIRES(mutex_);
  void RestartStuck() HPS_REQUIRES(mutex_);
  void WakeFetching();
  void Collect(Deadline deadline, UpdateBatch* batch);
  void TakeMessage(KafkaMessage message, UpdateBatch* batch) HPS_REQUIRES(mutex_);
  void TakeRecord(const std::string& name, Topic& topic, KafkaMessage message, UpdateBatch* batch)
      HPS_REQUIRES(mutex_);
  void TakeError(Topic& topic, const rd_kafka_message_t& message) HPS_REQUIRES(mutex_);

  const KafkaSourceOptions options_;
  RecordLimits limits_;
  std::unique_ptr<KafkaClient> client_;
  std::unique_ptr<TopicWatcher> watcher_;
  std::unique_ptr<MessageArrival> arrival_;

  mutable Mutex mutex_;
  std::map<std::string, Topic> topics_ HPS_GUARDED_BY(mutex_);  // by topic's name
  std::set<std::string> tables_ HPS_GUARDED_BY(mutex_);  // ever subscribed: records refer to them
  // Of partitions that were read when their topic was deleted: librdkafka 2.0.2 never ends if
  // something is left in them (fixed in 2.6.1).
  std::vector<KafkaQueue> left_queues_ HPS_GUARDED_BY(mutex_);
  std::vector<UpdateEvent> events_ HPS_GUARDED_BY(mutex_);  // of the next Poll
  absl::Status error_ HPS_GUARDED_BY(mutex_);               // that the next Poll returns
  TimePoint next_hints_ HPS_GUARDED_BY(mutex_){};
  TimePoint next_stuck_ HPS_GUARDED_BY(mutex_){};
  TimePoint next_wake_ HPS_GUARDED_BY(mutex_){};
};

}  // namespace hps
