// The consumer group in which nodes divide the partitions of their tables' update streams: each
// partition is read by one of them, its owner. When a node ends or hangs, others take its
// partitions over and read them from the offset that was committed last.
//
// One thread calls everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "update/kafka_settings.h"
#include "update/update_source.h"

namespace hps {

struct SharedGroupOptions {
  std::string brokers;  // "host:port,host:port"
  KafkaSettings settings{};
  std::string group;  // of all nodes that share the tables
  std::vector<std::string> tables{};
  size_t prefetch_bytes_max = size_t{16} << 20;  // of what is fetched ahead
};

class SharedGroup {
 public:
  virtual ~SharedGroup() = default;  // leaves the group

  // Records of partitions that this node owns, at most `records_max`; waits until `deadline` for
  // the first. Their generation is 0: a group does not count generations. Records of a partition
  // come in the order of their offsets; after it had another owner, some may come again. Without a
  // committed offset a partition is read from its end.
  // Errors: PERMISSION_DENIED, UNAUTHENTICATED: an operator has to act. It may be called again.
  virtual absl::StatusOr<std::vector<UpdateRecord>> Poll(size_t records_max, Deadline deadline) = 0;

  // The partitions that this node owns now, by table, ascending. Cheap.
  virtual std::vector<std::pair<std::string, uint32_t>> Owned() = 0;

  // The next owner begins at these positions. Never waits, and may be lost: records then come
  // again.
  virtual void Commit(const std::string& table, std::span<const StreamPosition> positions) = 0;
};

// Does not connect yet. Errors: INVALID_ARGUMENT (a setting), RESOURCE_EXHAUSTED (threads),
// UNIMPLEMENTED (a build without Kafka).
absl::StatusOr<std::unique_ptr<SharedGroup>> MakeKafkaGroup(const SharedGroupOptions& options);

}  // namespace hps
