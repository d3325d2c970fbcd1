// Makes the Kafka implementation of UpdateSource (src/update/kafka, or its stand-in).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "update/kafka_settings.h"
#include "update/update_source.h"

namespace hps {

struct KafkaSourceOptions {
  std::string brokers;  // "host:port,host:port"
  KafkaSettings settings{};
  // The node's own consumer group: only its hints are stored under it. No two nodes share one.
  std::string group;
  size_t batch_records_max = 1000;
  size_t batch_bytes_max = size_t{16} << 20;
  // Of records that Poll has given and that still exist; above it, Poll gives none.
  size_t memory_bytes_max = size_t{64} << 20;
  // Of what is fetched ahead, for all partitions together.
  size_t prefetch_bytes_max = size_t{32} << 20;
  uint64_t rows_per_second_max = 0;   // 0 = no limit
  uint64_t bytes_per_second_max = 0;  // of payloads; 0 = no limit
  // How often topics are looked for; a new one is found within twice this time.
  std::chrono::milliseconds look_every{2000};
};

// Does not connect yet: UpdateSourceStatistics::health tells whether brokers answer.
// Errors: INVALID_ARGUMENT (a setting; no brokers or group), RESOURCE_EXHAUSTED (threads),
// UNIMPLEMENTED (a build without Kafka).
absl::StatusOr<std::unique_ptr<UpdateSource>> MakeKafkaSource(const KafkaSourceOptions& options);

}  // namespace hps
