// The records of one table of the update stream, on their way to its applier: decodes them, sets
// aside those that cannot be applied, and merges neighbours into writes of a few megabytes.
//
// Nodes that share rows compare positions of a key's partition. So if the table has an import id, a
// message that changes keys of other partitions is set aside, too, unless the topic may have grown
// since (MayMisplaceKeys). Then it is in a write without positions of those partitions, which tells
// the shared level that versions of these keys have no order. Level 3 keeps their hashes with the
// table, so that the shared level knows them when the table is opened again.
//
// Records and events are applied in the order in which they were added. What an error has left is
// kept and applied by the next call, so a record is applied once for each delivery.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "hps/table_spec.h"
#include "update/parked_messages.h"
#include "update/stream_write.h"
#include "update/table_applier.h"
#include "update/update_message.h"
#include "update/update_source.h"

namespace hps {

class StreamTable {
 public:
  // `info` is of the incarnation that the records are for. `applier` and `parked` are borrowed.
  StreamTable(const TableInfo& info, TableApplier& applier, ParkedMessages& parked);

  const std::string& name() const { return info_.spec.name; }
  Incarnation incarnation() const { return info_.incarnation; }

  // `event` has positions.
  void Add(UpdateEvent event) { waiting_.emplace_back(std::move(event)); }
  void Add(UpdateRecord record) { waiting_.emplace_back(std::move(record)); }

  bool is_idle() const { return waiting_.empty() && !write_.has_value(); }

  // Applies what waits, and returns the first error of TableApplier::ApplyStream.
  absl::Status Apply(Deadline deadline);

  // The next position to apply of each partition that is known, by partition.
  const std::map<uint32_t, StreamPosition>& positions() const { return positions_; }
  // The time stamp of the newest record that was applied of a partition; 0 = none.
  int64_t applied_time_ms(uint32_t partition) const;
  uint64_t records_lost() const { return records_lost_; }  // since the import

 private:
  using Item = std::variant<UpdateEvent, UpdateRecord>;

  void Build();
  bool AddRecord(const UpdateRecord& record, StreamWrite& write);
  uint32_t PartitionsToCompare(const UpdateRecord& record) const;
  void Park(const UpdateRecord& record, const absl::Status& why);
  TableApplier::StreamChange ChangeOf(StreamWrite& write,
                                      std::vector<StreamPosition>& positions) const;

  const TableInfo info_;
  TableApplier& applier_;
  ParkedMessages& parked_;
  std::deque<Item> waiting_;
  std::optional<StreamWrite> write_;  // built, not applied yet
  std::map<uint32_t, StreamPosition> positions_;
  std::map<uint32_t, int64_t> times_ms_;
  uint64_t records_lost_;
};

}  // namespace hps
