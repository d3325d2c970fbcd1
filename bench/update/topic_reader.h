// The topic of a benchmark as librdkafka alone sees it: the bound of a node that reads it.
//
// A build without Kafka has topic_reader_without_kafka.cc instead: everything is UNIMPLEMENTED.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps::bench {

// Errors: UNIMPLEMENTED in a build without Kafka.
absl::Status CheckKafka();

// By partition: the offset after the last record.
// Errors: NOT_FOUND (no such topic), UNAVAILABLE and others of the brokers.
absl::StatusOr<std::vector<uint64_t>> TopicEnds(const std::string& brokers,
                                                const std::string& topic);

// A part of a topic: of each partition the records from `begins` to before `ends`.
struct TopicRange {
  std::string topic;
  std::vector<uint64_t> begins;
  std::vector<uint64_t> ends;
};

// Reads the records with one consumer, with the settings that a node has by default, and discards
// them. Returns how often it would read all of them in a second (ProgressClock, by records).
// Errors: of the brokers; DEADLINE_EXCEEDED when ten seconds pass without a record.
absl::StatusOr<double> ReadAndDiscard(const std::string& brokers, const TopicRange& range);

}  // namespace hps::bench
