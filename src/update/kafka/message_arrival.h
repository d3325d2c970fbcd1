// Waits for the next message of a Kafka consumer.
//
// librdkafka 2.0.2 waits for messages by the clock of the day: if that is set back by an hour, it
// waits for an hour. So this class waits by itself, until librdkafka says that its empty queue has
// got a message.
//
// One thread waits. Must end before its consumer is closed.
#pragma once

#include "base/clock.h"
#include "base/mutex.h"
#include "update/kafka/kafka_client.h"

namespace hps {

class MessageArrival {
 public:
  // REQUIRES: rd_kafka_poll_set_consumer was called.
  explicit MessageArrival(const KafkaClient& consumer)
      : queue_(rd_kafka_queue_get_consumer(consumer.handle())) {
    rd_kafka_queue_cb_event_enable(queue_.get(), Note, this);
  }
  ~MessageArrival() { rd_kafka_queue_cb_event_enable(queue_.get(), nullptr, nullptr); }
  MessageArrival(const MessageArrival&) = delete;
  MessageArrival& operator=(const MessageArrival&) = delete;

  // Returns at once if a message has arrived since the last wait.
  void WaitUntil(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!has_arrived_ && arrived_.WaitUntil(mutex_, deadline)) continue;
    has_arrived_ = false;
  }

 private:
  static void Note(rd_kafka_t* /*consumer*/, void* self) {
    auto& arrival = *static_cast<MessageArrival*>(self);
    MutexLock lock(arrival.mutex_);
    arrival.has_arrived_ = true;
    arrival.arrived_.NotifyAll();
  }

  const KafkaQueue queue_;
  Mutex mutex_;
  CondVar arrived_;
  bool has_arrived_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
