// A table of a level 2 that several nodes share, as the node that applies changes sees it
// (docs/redis.md, "Rows that several nodes share").
//
// The nodes are not equally far in the update stream. So the level takes no order from a node's
// apply epochs; it compares positions of the stream, which mean the same on every node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "hps/table_spec.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"

namespace hps {

// Changes of a stream: all records from `from` up to the positions of `write`, in the partitions
// that these name. Borrowed for the call.
struct SharedChange {
  const DurableWrite* write =
      nullptr;  // its rows and deletes have versions, ascending in a partition
  std::span<const StreamPosition> from{};  // one for each of write->positions, of its partition
  // Asked between the parts of a long write: true ends it with UNAVAILABLE.
  std::function<bool()> ends{};
};

// BeginChange and EndChange are for the table's applier, one at a time; WriteChange is thread-safe.
class SharedTable {
 public:
  virtual ~SharedTable() = default;

  // Call it before level 3 shows the change, which has opened `epoch`. From then on, rows of these
  // keys that lack the change are never taken, and promotions that read such rows are refused. So
  // RaiseWatermarks, Update and Erase of the LossyTable have nothing to do.
  virtual void BeginChange(std::span<const Key> keys, ApplyEpoch epoch,
                           std::span<const StreamPosition> positions) = 0;

  // Level 3 has the change, so rows up to its positions may be taken. Writes the change into the
  // level, if the nodes do not divide this work. What the level then lacks costs misses only.
  virtual void EndChange(const DurableWrite& write) = 0;

  // Writes changes that level 3 of this node has. They may have been written before, by any node.
  // Errors: UNAVAILABLE: some of it may be missing; the caller writes it again.
  virtual absl::Status WriteChange(const SharedChange& change) = 0;

  // The positions of level 3, ascending by partition.
  virtual std::vector<StreamPosition> Positions() const = 0;
};

// The table in level 3, when it is opened here.
struct SharedTableStart {
  TableInfo info{};
  std::vector<uint16_t> unordered_hashes{};  // DurableTable::UnorderedHashes
};

struct OpenedSharedTable {
  std::unique_ptr<LossyTable> table;
  SharedTable* shared = nullptr;  // a part of `table`
};

}  // namespace hps
