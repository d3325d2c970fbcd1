#include "testing/fakes/fake_update_stream.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

void FakeUpdateStream::MakeTopic(const std::string& table, uint32_t partition_count) {
  MutexLock lock(mutex_);
  HPS_CHECK(topics_.emplace(table, Topic(partition_count)).second);
  changed_.NotifyAll();
}

void FakeUpdateStream::DropTopic(const std::string& table) {
  MutexLock lock(mutex_);
  HPS_CHECK(topics_.erase(table) == 1);
  changed_.NotifyAll();
}

void FakeUpdateStream::Grow(const std::string& table, uint32_t partition_count) {
  MutexLock lock(mutex_);
  Topic& topic = topics_.at(table);
  HPS_CHECK(partition_count > topic.size());
  topic.resize(partition_count);
  changed_.NotifyAll();
}

uint64_t FakeUpdateStream::Append(const std::string& table, uint32_t partition, Record record) {
  MutexLock lock(mutex_);
  Partition& to = topics_.at(table).at(partition);
  to.records.push_back(std::move(record));
  changed_.NotifyAll();
  return to.high() - 1;
}

void FakeUpdateStream::Expire(const std::string& table, uint32_t partition, uint64_t low) {
  MutexLock lock(mutex_);
  Partition& from = topics_.at(table).at(partition);
  HPS_CHECK(low <= from.high());
  if (low <= from.low) return;
  from.records.erase(from.records.begin(),
                     from.records.begin() + static_cast<ptrdiff_t>(low - from.low));
  from.low = low;
  changed_.NotifyAll();
}

void FakeUpdateStream::SetPollStatus(absl::Status status) {
  MutexLock lock(mutex_);
  poll_status_ = std::move(status);
  changed_.NotifyAll();
}

void FakeUpdateStream::SetDown(bool is_down) {
  MutexLock lock(mutex_);
  is_down_ = is_down;
  changed_.NotifyAll();
}

TopicView FakeUpdateStream::View(const TopicTracker& tracker) const {
  TopicView view;
  const auto found = topics_.find(tracker.table());
  if (found == topics_.end()) return view;
  view.exists = true;
  view.partition_count = static_cast<uint32_t>(found->second.size());
  view.question = tracker.question().value_or(0);
  if (!tracker.question().has_value()) return view;
  for (const Partition& partition : found->second) {
    const auto young = std::find_if(
        partition.records.begin(), partition.records.end(),
        [&](const Record& record) { return record.time_ms >= tracker.start().time_ms; });
    const auto start = static_cast<uint64_t>(young - partition.records.begin());
    view.ranges.push_back(
        {.low = partition.low, .high = partition.high(), .start = partition.low + start});
  }
  return view;
}

// Not thread-safe but for Statistics: everything is under the stream's lock.
class FakeUpdateSource final : public UpdateSource {
 public:
  FakeUpdateSource(FakeUpdateStream& stream, FakeUpdateStream::SourceOptions options)
      : stream_(stream), options_(std::move(options)) {}

  absl::Status Subscribe(const UpdateSubscription& subscription) override {
    HPS_RETURN_IF_ERROR(TopicTracker::Check(subscription));
    MutexLock lock(stream_.mutex_);
    if (!trackers_.try_emplace(subscription.table, subscription, Duration(0)).second) {
      return absl::AlreadyExistsError(absl::StrCat("subscribed: ", subscription.table));
    }
    tables_.insert(subscription.table);
    return absl::OkStatus();
  }

  absl::Status Unsubscribe(std::string_view table) override {
    MutexLock lock(stream_.mutex_);
    HPS_RETURN_IF_ERROR(Find(table).status());
    trackers_.erase(trackers_.find(table));
    std::erase_if(events_, [&](const UpdateEvent& event) { return event.table == table; });
    return absl::OkStatus();
  }

  absl::StatusOr<UpdateBatch> Poll(Deadline deadline) override {
    MutexLock lock(stream_.mutex_);
    while (true) {
      UpdateBatch batch;
      HPS_RETURN_IF_ERROR(stream_.poll_status_);
      if (!stream_.is_down_) Collect(&batch);
      if (!batch.events.empty() || !batch.records.empty()) return batch;
      if (RealClock().Now() >= deadline) return batch;
      stream_.changed_.WaitUntil(stream_.mutex_, deadline);
    }
  }

  absl::Status SetPaused(std::string_view table, uint32_t partition, bool is_paused) override {
    MutexLock lock(stream_.mutex_);
    HPS_ASSIGN_OR_RETURN(TopicTracker* const tracker, Find(table));
    return tracker->SetPaused(partition, is_paused);
  }
  absl::Status CommitHint(std::string_view table,
                          std::span<const StreamPosition> positions) override {
    MutexLock lock(stream_.mutex_);
    HPS_RETURN_IF_ERROR(Find(table).status());
    std::vector<StreamPosition>& committed = stream_.committed_[CommitKey(table)];
    for (const StreamPosition& position : positions) {
      std::erase_if(committed, [&](const StreamPosition& other) {
        return other.partition == position.partition;
      });
      committed.push_back(position);
    }
    std::sort(committed.begin(), committed.end(),
              [](const auto& a, const auto& b) { return a.partition < b.partition; });
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StreamPosition>> Committed(std::string_view table,
                                                        Deadline /*deadline*/) override {
    MutexLock lock(stream_.mutex_);
    HPS_RETURN_IF_ERROR(Find(table).status());
    if (stream_.is_down_) return absl::UnavailableError("the stream is down");
    if (stream_.topics_.find(table) == stream_.topics_.end())
      return absl::UnavailableError("there is no topic");
    return stream_.committed_[CommitKey(table)];
  }

  UpdateSourceStatistics Statistics() const override {
    MutexLock lock(stream_.mutex_);
    UpdateSourceStatistics statistics = counts_;
    if (stream_.is_down_) statistics.health = absl::UnavailableError("the stream is down");
    for (const auto& [table, tracker] : trackers_) {
      if (tracker.is_missing()) statistics.missing_topics.push_back(table);
      const auto topic = stream_.topics_.find(table);
      const std::vector<TopicTracker::Partition>& partitions = tracker.partitions();
      for (uint32_t i = 0; i < partitions.size(); ++i) {
        const bool exists = topic != stream_.topics_.end() && i < topic->second.size();
        statistics.partitions.push_back(
            {.table = table,
             .position = {i, tracker.generation(), partitions[i].next},
             .end = exists ? topic->second[i].high() : partitions[i].next,
             .paused = tracker.IsPaused(i)});
      }
    }
    return statistics;
  }

 private:
  std::string CommitKey(std::string_view table) const {
    return absl::StrCat(options_.node, ":", std::string(table));
  }

  absl::StatusOr<TopicTracker*> Find(std::string_view table) HPS_REQUIRES(stream_.mutex_) {
    const auto found = trackers_.find(table);
    if (found == trackers_.end()) {
      return absl::NotFoundError(absl::StrCat("not subscribed: ", std::string(table)));
    }
    return &found->second;
  }

  // What can be had without waiting. Events come first; one that follows a record ends the batch.
  void Collect(UpdateBatch* batch) HPS_REQUIRES(stream_.mutex_) {
    // An answer can raise a question, and an event can make partitions readable.
    for (auto& [table, tracker] : trackers_) {
      for (int i = 0; i < 4; ++i) tracker.Learn(stream_.View(tracker), &events_);
    }
    batch->events = std::exchange(events_, {});
    for (auto& [table, tracker] : trackers_) {
      const auto topic = stream_.topics_.find(table);
      if (topic == stream_.topics_.end()) continue;
      for (uint32_t i = 0; i < topic->second.size(); ++i) {
        CollectPartition(tracker, i, topic->second[i], batch);
        if (batch->records.empty()) {
          batch->events.insert(batch->events.end(), events_.begin(), events_.end());
          events_.clear();
        }
        if (!events_.empty()) return;
      }
    }
  }

  void CollectPartition(TopicTracker& tracker, uint32_t partition,
                        const FakeUpdateStream::Partition& from, UpdateBatch* batch)
      HPS_REQUIRES(stream_.mutex_) {
    while (tracker.IsWanted(partition) && batch->records.size() < options_.batch_records_max) {
      const uint64_t offset = tracker.partitions()[partition].next;
      if (offset == from.high()) return;
      if (offset < from.low || offset > from.high()) return tracker.LosePosition(partition);
      const FakeUpdateStream::Record& record = from.records[offset - from.low];
      const TopicTracker::Taken taken =
          tracker.Take(partition, offset, record.partition_count, &events_);
      if (taken.verdict == TopicTracker::Verdict::kDeliver) {
        Deliver(tracker, {partition, taken.generation, offset}, record, batch);
      }
      if (!events_.empty()) return;
    }
  }

  void Deliver(const TopicTracker& tracker, const StreamPosition& position,
               const FakeUpdateStream::Record& record, UpdateBatch* batch)
      HPS_REQUIRES(stream_.mutex_) {
    auto payload = std::make_unique<std::vector<std::byte>>(record.payload);
    UpdateRecord delivered;
    delivered.table = *tables_.find(tracker.table());
    delivered.position = position;
    delivered.time_ms = record.time_ms;
    delivered.partition_count = record.partition_count;
    delivered.payload = *payload;
    delivered.owner = UpdateRecord::Owner(payload.release(), [](void* owned) {
      const std::unique_ptr<std::vector<std::byte>> freed(
          static_cast<std::vector<std::byte>*>(owned));
    });
    ++counts_.records;
    counts_.bytes += record.payload.size();
    batch->records.push_back(std::move(delivered));
  }

  FakeUpdateStream& stream_;
  const FakeUpdateStream::SourceOptions options_;
  std::map<std::string, TopicTracker, std::less<>> trackers_ HPS_GUARDED_BY(stream_.mutex_);
  std::set<std::string, std::less<>> tables_;  // that were ever subscribed: records refer to them
  std::vector<UpdateEvent> events_ HPS_GUARDED_BY(stream_.mutex_);  // of the next Poll
  UpdateSourceStatistics counts_;
};

std::unique_ptr<UpdateSource> FakeUpdateStream::NewSource(const SourceOptions& options) {
  return std::make_unique<FakeUpdateSource>(*this, options);
}

}  // namespace hps
