#include "update/kafka/kafka_source.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "update/update_message.h"

namespace hps {
namespace {

// Between two looks at what the watcher has found.
constexpr auto kSlice = std::chrono::milliseconds(20);
// After a broker did not answer the question that wakes fetching.
constexpr auto kWakeRest = std::chrono::seconds(1);
constexpr auto kHintsEvery = std::chrono::milliseconds(500);
// A partition that has records and delivers none for kStuckAfter is assigned again. The wait
// doubles each time, up to kStuckAfterMax.
constexpr auto kStuckLookEvery = std::chrono::seconds(1);
constexpr auto kStuckAfter = std::chrono::seconds(10);
constexpr auto kStuckAfterMax = std::chrono::minutes(5);
constexpr std::string_view kGenerationMark = "generation=";

KafkaClient::Options ClientOptions(const KafkaSourceOptions& options) {
  const size_t prefetch_kbytes = std::max<size_t>(options.prefetch_bytes_max >> 10, 1);
  const size_t fetch_bytes =
      std::clamp<size_t>(options.prefetch_bytes_max, 1 << 20, size_t{50} << 20);
  return {.type = RD_KAFKA_CONSUMER,
          .brokers = options.brokers,
          .settings = options.settings,
          .defaults = {{"queued.max.messages.kbytes", absl::StrCat(prefetch_kbytes)},
                       {"fetch.max.bytes", absl::StrCat(fetch_bytes)},
                       {"fetch.wait.max.ms", "100"},
                       {"fetch.error.backoff.ms", "50"},
                       {"topic.metadata.refresh.interval.ms", "30000"},
                       {"reconnect.backoff.max.ms", "1000"}},
          .fixed = {{"group.id", options.group},
                    {"enable.auto.commit", "false"},
                    {"enable.auto.offset.store", "false"},
                    {"auto.offset.reset", "error"},
                    {"enable.partition.eof", "true"},
                    {"check.crcs", "true"},
                    {"allow.auto.create.topics", "false"},
                    // The caller may take its time.
                    {"max.poll.interval.ms", "86400000"}}};
}

// Owns the payload of a record.
struct Held {
  KafkaMessage message;
  RecordLimits& limits;
};

void Release(void* owned) {
  const std::unique_ptr<Held> held(static_cast<Held*>(owned));
  held->limits.Release(held->message->len);
}

uint16_t GenerationOf(const rd_kafka_topic_partition_t& committed) {
  const std::string_view text(static_cast<const char*>(committed.metadata),
                              committed.metadata_size);
  uint32_t generation = 0;
  if (!text.starts_with(kGenerationMark)) return 1;
  const std::string_view digits = text.substr(kGenerationMark.size());
  if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &generation)) return 1;
  return static_cast<uint16_t>(std::min<uint32_t>(generation, UINT16_MAX));
}

void Drain(KafkaQueue queue) {
  if (queue == nullptr) return;
  rd_kafka_queue_forward(queue.get(), nullptr);
  while (KafkaMessage(rd_kafka_consume_queue(queue.get(), 0)) != nullptr) {
  }
}

void TakeAssignError(const std::string& name, rd_kafka_error_t* error) {
  if (error == nullptr) return;
  LogError(absl::StrCat("topic '", name, "': librdkafka does not assign its partitions: ",
                        rd_kafka_error_string(error)));
  rd_kafka_error_destroy(error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateSource>> MakeKafkaSource(const KafkaSourceOptions& options) {
  return KafkaSource::Make(options);
}

absl::StatusOr<std::unique_ptr<UpdateSource>> KafkaSource::Make(const KafkaSourceOptions& options) {
  if (options.group.empty()) {
    return absl::InvalidArgumentError("the update stream needs a group of the node's own");
  }
  std::unique_ptr<KafkaSource> source(new KafkaSource(options));
  HPS_RETURN_IF_ERROR(source->Connect());
  return source;
}

absl::Status KafkaSource::Connect() {
  HPS_ASSIGN_OR_RETURN(client_, KafkaClient::Make(ClientOptions(options_)));
  HPS_RETURN_IF_ERROR(KafkaStatus(rd_kafka_poll_set_consumer(client_->handle()), "Kafka consumer"));
  arrival_ = std::make_unique<MessageArrival>(*client_);
  HPS_ASSIGN_OR_RETURN(watcher_, TopicWatcher::Start(*client_, options_.look_every));
  return absl::OkStatus();
}

KafkaSource::~KafkaSource() {
  watcher_.reset();
  arrival_.reset();
  HPS_CHECK(limits_.memory_bytes() == 0);  // records are destroyed before their source
  if (client_ == nullptr) return;
  rd_kafka_consumer_close(client_->handle());
  MutexLock lock(mutex_);
  for (auto& [name, topic] : topics_) {
    for (KafkaQueue& queue : topic.queues) left_queues_.push_back(std::move(queue));
  }
  for (KafkaQueue& queue : left_queues_) Drain(std::move(queue));
}

absl::StatusOr<KafkaSource::Topic*> KafkaSource::Find(std::string_view table) {
  const auto found = topics_.find(UpdateTopic(table));
  if (found == topics_.end()) {
    return absl::NotFoundError(absl::StrCat("table '", std::string(table), "' is not subscribed"));
  }
  return &found->second;
}

absl::Status KafkaSource::Subscribe(const UpdateSubscription& subscription) {
  HPS_RETURN_IF_ERROR(TopicTracker::Check(subscription));
  MutexLock lock(mutex_);
  const auto [topic, is_new] = topics_.try_emplace(UpdateTopic(subscription.table), subscription);
  if (!is_new) {
    return absl::AlreadyExistsError(
        absl::StrCat("table '", subscription.table, "' is subscribed already"));
  }
  tables_.insert(subscription.table);
  watcher_->FollowEnds(topic->first);
  Follow(topic->first, topic->second);
  return absl::OkStatus();
}

absl::Status KafkaSource::Unsubscribe(std::string_view table) {
  MutexLock lock(mutex_);
  HPS_ASSIGN_OR_RETURN(Topic* const topic, Find(table));
  const std::string name = UpdateTopic(table);
  HPS_RETURN_IF_ERROR(topic->tracker.SetPaused(kAllPartitions, true));
  Assign(name, *topic);
  watcher_->Forget(name);
  topics_.erase(name);
  std::erase_if(events_, [&](const UpdateEvent& event) { return event.table == table; });
  return absl::OkStatus();
}

absl::Status KafkaSource::SetPaused(std::string_view table, uint32_t partition, bool is_paused) {
  MutexLock lock(mutex_);
  HPS_ASSIGN_OR_RETURN(Topic* const topic, Find(table));
  HPS_RETURN_IF_ERROR(topic->tracker.SetPaused(partition, is_paused));
  Assign(UpdateTopic(table), *topic);
  return absl::OkStatus();
}

absl::StatusOr<UpdateBatch> KafkaSource::Poll(Deadline deadline) {
  UpdateBatch batch;
  while (true) {
    {
      MutexLock lock(mutex_);
      LearnAnswers();
      SendHints();
      HPS_RETURN_IF_ERROR(std::exchange(error_, absl::OkStatus()));
      if (absl::Status health = client_->health(); NeedsAnOperator(health)) return health;
      if (!events_.empty()) {
        batch.events = std::exchange(events_, {});
        return batch;
      }
    }
    const Deadline slice = std::min(deadline, RealClock().Now() + kSlice);
    if (limits_.WaitForRoom(slice)) Collect(slice, &batch);
    if (!batch.records.empty() || RealClock().Now() >= deadline) return batch;
  }
}

void KafkaSource::LearnAnswers() {
  for (auto& [name, view] : watcher_->TakeAnswers()) {
    const auto topic = topics_.find(name);
    if (topic == topics_.end()) continue;
    topic->second.tracker.Learn(view, &events_);
    Follow(name, topic->second);
  }
}

// Asks what the tracker wants to know, and assigns what it wants to read.
void KafkaSource::Follow(const std::string& name, Topic& topic) {
  const uint64_t question = topic.tracker.question().value_or(0);
  if (question != 0 && question != topic.asked) {
    watcher_->Watch(name, {.number = question, .start = topic.tracker.start()});
  }
  topic.asked = question;
  Assign(name, topic);
}

void KafkaSource::Assign(const std::string& name, Topic& topic) {
  const TopicTracker& tracker = topic.tracker;
  topic.queues.resize(std::max(topic.queues.size(), tracker.partitions().size()));
  const KafkaPartitionList added = NewKafkaPartitionList();
  for (uint32_t i = 0; i < topic.queues.size(); ++i) {
    const bool is_wanted = tracker.IsWanted(i);
    if (is_wanted == (topic.queues[i] != nullptr)) continue;
    if (!is_wanted) {
      Unassign(name, topic, i);
      continue;
    }
    const auto partition = static_cast<int32_t>(i);
    rd_kafka_topic_partition_list_add(added.get(), name.c_str(), partition)->offset =
        static_cast<int64_t>(tracker.partitions()[i].next);
    topic.queues[i].reset(rd_kafka_queue_get_partition(client_->handle(), name.c_str(), partition));
  }
  if (added->cnt > 0)
    TakeAssignError(name, rd_kafka_incremental_assign(client_->handle(), added.get()));
}

void KafkaSource::Unassign(const std::string& name, Topic& topic, uint32_t partition) {
  const KafkaPartitionList removed = NewKafkaPartitionList(1);
  rd_kafka_topic_partition_list_add(removed.get(), name.c_str(), static_cast<int32_t>(partition));
  TakeAssignError(name, rd_kafka_incremental_unassign(client_->handle(), removed.get()));
  if (topic.tracker.is_missing()) left_queues_.push_back(std::move(topic.queues[partition]));
  topic.queues[partition].reset();
}

void KafkaSource::Collect(Deadline deadline, UpdateBatch* batch) {
  size_t bytes = 0;
  while (batch->records.size() < options_.batch_records_max && bytes < options_.batch_bytes_max) {
    KafkaMessage message(rd_kafka_consumer_poll(client_->handle(), 0));
    if (message == nullptr) {
      if (!batch->records.empty() || RealClock().Now() >= deadline) return;
      {
        MutexLock lock(mutex_);
        RestartStuck();
      }
      WakeFetching();
      arrival_->WaitUntil(deadline);
      continue;
    }
    const size_t record_count = batch->records.size();
    MutexLock lock(mutex_);
    TakeMessage(std::move(message), batch);
    if (batch->records.size() > record_count) bytes += batch->records.back().payload.size();
    // An event comes after the records before it.
    if (!events_.empty()) return;
    if (!limits_.RatesLetPass()) return;
  }
}

// librdkafka 2.0.2 sometimes reads no more of a partition whose leader has changed, until it is
// assigned again (seen when three brokers were ended in turn). The broker's answer about the end
// tells. REQUIRES: librdkafka has no message for us.
void KafkaSource::RestartStuck() {
  const TimePoint now = RealClock().Now();
  if (now < next_stuck_) return;
  next_stuck_ = now + kStuckLookEvery;
  for (auto& [name, topic] : topics_) {
    const std::vector<uint64_t> ends = watcher_->ends(name);
    topic.waiting.resize(topic.queues.size());
    const size_t count = std::min(ends.size(), topic.tracker.partitions().size());
    for (uint32_t i = 0; i < std::min(count, topic.queues.size()); ++i) {
      Topic::Waiting& waiting = topic.waiting[i];
      const uint64_t next = topic.tracker.partitions()[i].next;
      if (topic.queues[i] == nullptr || ends[i] <= next) {
        waiting = Topic::Waiting();
      } else if (waiting.next != next) {
        waiting = {.next = next, .since = now, .patience = kStuckAfter};
      } else if (now - waiting.since >= waiting.patience) {
        LogWarning(absl::StrCat("topic '", name, "', partition ", i,
                                ": no record came from offset ", next, " on, though it ends at ",
                                ends[i], "; reading it anew"));
        waiting.since = now;
        waiting.patience = std::min<Duration>(2 * waiting.patience, kStuckAfterMax);
        Unassign(name, topic, i);
      }
    }
    Assign(name, topic);
  }
}

// librdkafka before 2.2 looks once a second whether a queue that was full has room again: at best
// `prefetch_bytes_max` bytes would be read per second. A question to a broker wakes its thread.
// REQUIRES: librdkafka has no message for us.
void KafkaSource::WakeFetching() {
  // By topic: assigned partitions that have records for us at the brokers.
  std::map<std::string, std::vector<uint32_t>> behind;
  {
    MutexLock lock(mutex_);
    if (RealClock().Now() < next_wake_) return;
    for (const auto& [name, topic] : topics_) {
      const std::vector<uint64_t> ends = watcher_->ends(name);
      const auto& read = topic.tracker.partitions();
      for (uint32_t i = 0; i < std::min({ends.size(), read.size(), topic.queues.size()}); ++i) {
        if (topic.queues[i] != nullptr && ends[i] > read[i].next) behind[name].push_back(i);
      }
    }
  }
  for (const auto& [topic, partitions] : behind) {
    if (client_->AskOffsets(topic, partitions, KafkaClient::kHigh, kSlice).ok()) continue;
    MutexLock lock(mutex_);
    next_wake_ = RealClock().Now() + kWakeRest;  // others must not wait for a broker that is down
    return;
  }
}

void KafkaSource::TakeMessage(KafkaMessage message, UpdateBatch* batch) {
  if (message->rkt == nullptr) {
    const absl::Status status =
        KafkaStatus(message->err, "Kafka consumer", rd_kafka_message_errstr(message.get()));
    if (NeedsAnOperator(status)) error_ = status;
    return;
  }
  const std::string name = rd_kafka_topic_name(message->rkt);
  const auto found = topics_.find(name);
  if (found == topics_.end()) return;
  Topic& topic = found->second;
  if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
    TakeRecord(name, topic, std::move(message), batch);
  } else {
    TakeError(topic, *message);
  }
  Follow(name, topic);
}

void KafkaSource::TakeError(Topic& topic, const rd_kafka_message_t& message) {
  const auto partition = static_cast<uint32_t>(message.partition);
  if (message.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    topic.tracker.ReachEnd(partition, static_cast<uint64_t>(message.offset), &events_);
    return;
  }
  if (message.err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
      message.err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE) {
    topic.tracker.LosePosition(partition);
    return;
  }
  const absl::Status status = KafkaStatus(
      message.err, absl::StrCat("table '", topic.tracker.table(), "', partition ", partition),
      rd_kafka_message_errstr(&message));
  LogWarning(std::string(status.message()));
  if (NeedsAnOperator(status)) error_ = status;
}

void KafkaSource::TakeRecord(const std::string& name, Topic& topic, KafkaMessage message,
                             UpdateBatch* batch) {
  const auto partition = static_cast<uint32_t>(message->partition);
  const auto offset = static_cast<uint64_t>(message->offset);
  const uint32_t producer_partitions = ProducerPartitions(*message);
  const TopicTracker::Taken taken =
      topic.tracker.Take(partition, offset, producer_partitions, &events_);
  if (taken.verdict != TopicTracker::Verdict::kDeliver) {
    // A held partition is assigned again at the held record, even if it is wanted at once.
    if (taken.verdict == TopicTracker::Verdict::kHold && topic.queues[partition] != nullptr) {
      Unassign(name, topic, partition);
    }
    return;
  }
  rd_kafka_timestamp_type_t kind{};
  const int64_t time_ms = rd_kafka_message_timestamp(message.get(), &kind);
  UpdateRecord record;
  record.table = *tables_.find(topic.tracker.table());
  record.position = {.partition = partition, .generation = taken.generation, .offset = offset};
  record.time_ms = kind == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? 0 : std::max<int64_t>(time_ms, 0);
  record.partition_count = producer_partitions;
  record.payload = {static_cast<const std::byte*>(message->payload), message->len};
  limits_.Take(record.payload);
  auto held = std::make_unique<Held>(Held{std::move(message), limits_});
  record.owner = UpdateRecord::Owner(held.release(), Release);
  batch->records.push_back(std::move(record));
}

absl::Status KafkaSource::CommitHint(std::string_view table,
                                     std::span<const StreamPosition> positions) {
  MutexLock lock(mutex_);
  HPS_ASSIGN_OR_RETURN(Topic* const topic, Find(table));
  for (const StreamPosition& position : positions) topic->hints[position.partition] = position;
  return absl::OkStatus();
}

// The newest hint of each partition, all in one request from time to time.
void KafkaSource::SendHints() {
  const TimePoint now = RealClock().Now();
  if (now < next_hints_) return;
  next_hints_ = now + kHintsEvery;
  const KafkaPartitionList list = NewKafkaPartitionList();
  for (auto& [name, topic] : topics_) {
    for (const auto& [partition, position] : topic.hints) {
      rd_kafka_topic_partition_t* const hint = rd_kafka_topic_partition_list_add(
          list.get(), name.c_str(), static_cast<int32_t>(partition));
      hint->offset = static_cast<int64_t>(position.offset);
      const std::string mark = absl::StrCat(std::string(kGenerationMark), position.generation);
      hint->metadata = strdup(mark.c_str());  // the list frees it
      hint->metadata_size = mark.size();
    }
    topic.hints.clear();
  }
  // Its result is not needed: the next hint replaces it.
  if (list->cnt > 0) rd_kafka_commit(client_->handle(), list.get(), 1);
}

absl::StatusOr<std::vector<StreamPosition>> KafkaSource::Committed(std::string_view table,
                                                                   Deadline deadline) {
  {
    MutexLock lock(mutex_);
    HPS_RETURN_IF_ERROR(Find(table).status());
  }
  const std::string name = UpdateTopic(table);
  HPS_ASSIGN_OR_RETURN(const auto topics, client_->AskTopics(deadline - RealClock().Now()));
  const auto found = topics.find(name);
  if (found == topics.end() || found->second.partition_count == 0)
    return absl::UnavailableError(absl::StrCat("topic '", name, "' is not there"));
  const auto partition_count = static_cast<int32_t>(found->second.partition_count);
  const KafkaPartitionList list = NewKafkaPartitionList(found->second.partition_count);
  rd_kafka_topic_partition_list_add_range(list.get(), name.c_str(), 0, partition_count - 1);
  HPS_RETURN_IF_ERROR(
      KafkaStatus(rd_kafka_committed(client_->handle(), list.get(),
                                     KafkaMilliseconds(deadline - RealClock().Now())),
                  absl::StrCat("topic '", name, "': committed offsets can't be asked for")));
  std::vector<StreamPosition> positions;
  for (const rd_kafka_topic_partition_t& partition : PartitionsOf(list)) {
    HPS_RETURN_IF_ERROR(KafkaStatus(
        partition.err, absl::StrCat("topic '", name, "': committed offsets can't be asked for")));
    if (partition.offset < 0) continue;  // none
    positions.push_back({.partition = static_cast<uint32_t>(partition.partition),
                         .generation = GenerationOf(partition),
                         .offset = static_cast<uint64_t>(partition.offset)});
  }
  return positions;
}

UpdateSourceStatistics KafkaSource::Statistics() const {
  UpdateSourceStatistics statistics;
  statistics.health = client_->health();
  if (statistics.health.ok()) statistics.health = watcher_->health();
  MutexLock lock(mutex_);
  statistics.records = limits_.records_given();
  statistics.bytes = limits_.bytes_given();
  for (const auto& [name, topic] : topics_) {
    const TopicTracker& tracker = topic.tracker;
    if (tracker.is_missing()) statistics.missing_topics.push_back(tracker.table());
    std::vector<uint64_t> ends = watcher_->ends(name);
    ends.resize(std::max(ends.size(), tracker.partitions().size()));
    for (uint32_t i = 0; i < tracker.partitions().size(); ++i) {
      const TopicTracker::Partition& partition = tracker.partitions()[i];
      int64_t low = 0, high = 0;  // negative: not known
      rd_kafka_get_watermark_offsets(client_->handle(), name.c_str(), static_cast<int32_t>(i), &low,
                                     &high);
      const auto end = static_cast<uint64_t>(std::max<int64_t>(high, 0));
      statistics.partitions.push_back(
          {.table = tracker.table(),
           .position = {i, tracker.generation(), partition.next},
           .end = std::max({end, ends[i], partition.next, partition.bound.value_or(0)}),
           .paused = tracker.IsPaused(i)});
    }
  }
  return statistics;
}

}  // namespace hps
