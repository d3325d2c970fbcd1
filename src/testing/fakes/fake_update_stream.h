// An update stream in memory, and sources that read it: what a broker is to the Kafka source.
//
//   FakeUpdateStream stream;
//   stream.MakeTopic("m/t", 2);
//   stream.Append("m/t", 0, {.payload = message});
//   std::unique_ptr<UpdateSource> source = stream.NewSource({});
//
// The sources do what UpdateSource promises (the contract suite runs on them); what a broker does
// with time (retention, deletion, growth) happens when the test says so. Poll waits for Append.
//
// Thread-safe. Must outlive its sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "update/topic_tracker.h"
#include "update/update_source.h"

namespace hps {

class FakeUpdateStream {
 public:
  struct Record {
    std::vector<std::byte> payload;
    int64_t time_ms = 1;
    uint32_t partition_count = 0;  // that the producer says it uses; 0 = it does not say
  };
  struct SourceOptions {
    size_t batch_records_max = 100;
    std::string node = "node";  // whose hints Committed returns
  };

  // Creates the topic of a table. REQUIRES: it does not exist.
  void MakeTopic(const std::string& table, uint32_t partition_count);
  void DropTopic(const std::string& table);
  // REQUIRES: the topic exists and has fewer partitions.
  void Grow(const std::string& table, uint32_t partition_count);
  // Returns the record's offset. REQUIRES: topic and partition exist.
  uint64_t Append(const std::string& table, uint32_t partition, Record record);
  // Deletes the records before offset `low`, as retention does. REQUIRES: low <= the end.
  void Expire(const std::string& table, uint32_t partition, uint64_t low);
  // OK, or what Poll of every source returns (an operator has to act).
  void SetPollStatus(absl::Status status);
  // While down, the sources get nothing and their health is UNAVAILABLE.
  void SetDown(bool is_down);

  std::unique_ptr<UpdateSource> NewSource(const SourceOptions& options);

 private:
  friend class FakeUpdateSource;
  struct Partition {
    uint64_t low = 0;
    std::vector<Record> records;  // from `low` on

    uint64_t high() const { return low + records.size(); }
  };
  using Topic = std::vector<Partition>;

  TopicView View(const TopicTracker& tracker) const HPS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Topic, std::less<>> topics_ HPS_GUARDED_BY(mutex_);
  // By node and table.
  std::map<std::string, std::vector<StreamPosition>> committed_ HPS_GUARDED_BY(mutex_);
  absl::Status poll_status_ HPS_GUARDED_BY(mutex_);
  bool is_down_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
