// Asks the brokers about topics on a thread of its own, so that the thread that reads records waits
// for nothing: which topics exist, with how many partitions and, where a TopicTracker asks, which
// offsets they have. Besides it asks for the ends of topics: librdkafka learns ends only from what
// it reads.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "update/kafka/kafka_client.h"
#include "update/topic_tracker.h"

namespace hps {

class TopicWatcher {
 public:
  struct Question {
    uint64_t number = 0;  // 0: offsets are not asked for
    UpdateStart start{};
  };

  // `client` must outlive it. Errors: RESOURCE_EXHAUSTED (threads).
  static absl::StatusOr<std::unique_ptr<TopicWatcher>> Start(KafkaClient& client,
                                                             Duration look_every);
  TopicWatcher(const TopicWatcher&) = delete;
  TopicWatcher& operator=(const TopicWatcher&) = delete;
  ~TopicWatcher();

  // From now on looks for the topic, and answers its newest question soon.
  void Watch(const std::string& topic, const Question& question);
  void Forget(const std::string& topic);

  // From now on the ends of the topic are asked for at each look, until Forget.
  void FollowEnds(const std::string& topic);
  // By partition: the offset after the last record, as the brokers said it last; 0 = not known.
  std::vector<uint64_t> ends(const std::string& topic) const;

  // The answers since the last call, in order.
  std::vector<std::pair<std::string, TopicView>> TakeAnswers();

  // OK, or why the brokers could not be asked the last time.
  absl::Status health() const;

 private:
  TopicWatcher(KafkaClient& client, Duration look_every)
      : client_(client), look_every_(look_every) {}
  void Run();
  bool Look(const std::map<std::string, Question>& questions);
  absl::StatusOr<TopicView> View(const std::string& topic, const KafkaTopic& known,
                                 const Question& question);
  void AskEnds(const std::map<std::string, KafkaTopic>& topics);

  KafkaClient& client_;
  const Duration look_every_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Question> questions_ HPS_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, TopicView>> answers_ HPS_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<uint64_t>> ends_ HPS_GUARDED_BY(mutex_);  // those to follow
  absl::Status health_ HPS_GUARDED_BY(mutex_);
  bool is_asked_ HPS_GUARDED_BY(mutex_) = false;
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hps
