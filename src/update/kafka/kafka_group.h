// SharedGroup on librdkafka, which divides the partitions by Kafka's group protocol.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "update/kafka/kafka_client.h"
#include "update/shared_group.h"

namespace hps {

class KafkaGroup final : public SharedGroup {
 public:
  static absl::StatusOr<std::unique_ptr<SharedGroup>> Make(const SharedGroupOptions& options);

  KafkaGroup(const KafkaGroup&) = delete;
  KafkaGroup& operator=(const KafkaGroup&) = delete;
  ~KafkaGroup() override;

  absl::StatusOr<std::vector<UpdateRecord>> Poll(size_t records_max, Deadline deadline) override;
  std::vector<std::pair<std::string, uint32_t>> Owned() override;
  void Commit(const std::string& table, std::span<const StreamPosition> positions) override;

 private:
  explicit KafkaGroup(const SharedGroupOptions& options)
      : tables_(options.tables.begin(), options.tables.end()) {}

  absl::Status Join();

  const std::set<std::string> tables_;  // records refer to them
  std::unique_ptr<KafkaClient> client_;
};

}  // namespace hps
