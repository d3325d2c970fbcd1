// Counters of changes of rows, and of the update stream that brings them. Counters start at 0 when
// the store is opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hps {

// How long changes took from their publishing until a level had them, by the clocks of producer and
// node. counts[i]: at most 2^i ms; the last one: longer.
struct FreshnessHistogram {
  static constexpr size_t kBuckets = 21;
  static double BoundSeconds(size_t bucket) { return 0.001 * static_cast<double>(1U << bucket); }

  std::array<uint64_t, kBuckets> counts{};
  double seconds_sum = 0;
};

// One partition of a topic that this node reads.
struct StreamPartitionStatistics {
  std::string table;
  uint32_t partition = 0;
  uint64_t position = 0;  // offset of the next record to apply
  uint64_t lag_records = 0;
  double lag_seconds = 0;  // age of the newest applied record; 0 without lag or if unknown
};

struct StreamStatistics {
  bool enabled = false;  // [update] brokers is set
  std::string problem;   // why the stream cannot be read now; empty = it can
  // After a start: whether records that were applied before have still to be applied again (the end
  // of the log was lost with the power), and how that ended.
  bool recovering = false;
  bool recovery_unverified = false;  // no broker said (in time) how far this node had been
  double recovery_seconds = 0;
  uint64_t recovery_records = 0;  // applied again
  uint64_t records = 0;
  uint64_t bytes = 0;
  uint64_t records_lost = 0;  // deleted by retention before they were read
  std::vector<std::pair<std::string, uint64_t>> parked{};  // messages set aside, by reason
  std::vector<StreamPartitionStatistics> partitions{};
  std::vector<std::string> missing_topics{};  // tables that have no topic
  std::vector<std::string> stale_tables{};    // tables that lost records since their import
  std::vector<std::pair<std::string, std::string>> paused{};  // tables, and why
};

// One partition of a topic whose changes this node writes into the level 2 that nodes share.
struct SharedPartitionStatistics {
  std::string table;
  uint32_t partition = 0;
  // That this node's level 3 has and the shared level lacks; unknown until the node has read one.
  std::optional<uint64_t> lag_records{};
};

// This node in the group that writes a shared level 2.
struct SharedGroupStatistics {
  bool enabled = false;                                 // [update] shared_group is set
  std::vector<SharedPartitionStatistics> partitions{};  // that it owns now
  uint64_t takeovers = 0;  // partitions that it has become the owner of, also the first ones
  std::vector<std::string> left_tables{};  // tables that it leaves to others: their level 3 stands
};

// By direct calls and by the update stream.
struct UpdateStatistics {
  uint64_t changes = 0;         // applied; each is one atomic write
  uint64_t changes_failed = 0;  // level 3 refused them
  uint64_t rows_upserted = 0;
  uint64_t rows_deleted = 0;
  uint64_t rows_refreshed = 0;  // in level 1, counted for each device
  FreshnessHistogram l1_freshness{};
  FreshnessHistogram l2_freshness{};
  FreshnessHistogram l3_freshness{};
  StreamStatistics stream{};
  SharedGroupStatistics shared{};
};

}  // namespace hps
