// Neighbouring messages of one table, merged into one atomic change of a few megabytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "hps/table_spec.h"
#include "tier/durable_tier.h"
#include "update/update_message.h"
#include "update/update_source.h"

namespace hps {

// What becomes one atomic change: rows or deletions, and the positions behind them.
struct StreamWrite {
  UpdateKind kind = UpdateKind::kUpsert;
  std::vector<Key> keys{};
  std::vector<std::byte> rows{};
  std::vector<Version> versions{};
  std::map<uint32_t, StreamPosition> positions{};
  std::map<uint32_t, int64_t> times_ms{};
  std::vector<int64_t> publish_times_us{};
  uint64_t records_lost = 0;
  bool has_misplaced_keys = false;           // then it has records of one partition only
  std::vector<uint16_t> unordered_hashes{};  // of the misplaced keys

  bool has_rows() const { return !keys.empty(); }
};

// Of one write. A larger message is a write of its own.
inline constexpr size_t kStreamWriteBytesMax = size_t{4} << 20;
inline constexpr size_t kStreamWriteRowsMax = size_t{1} << 16;

// Adds the keys and rows of a message. False: they do not fit into this write, which is unchanged.
bool AppendMessage(const UpdateMessage& message, const TableSpec& spec, Version version,
                   StreamWrite& write);

// Whether a record is applied although it changes keys of other partitions than its own: its
// producer does not say that it distributes keys over all partitions that there are. The topic may
// have grown since.
inline bool MayMisplaceKeys(const UpdateRecord& record, uint32_t partition_count) {
  return record.partition_count != partition_count;
}

// As level 3 takes it; borrows `write` and `positions`.
DurableWrite DurableWriteOf(StreamWrite& write, const TableSpec& spec,
                            std::span<const StreamPosition> positions);

}  // namespace hps
