// The lossy tier: a level that holds some rows and may lose any of them at any time (level 2).
//
// Loss is never wrong: a key that is not held is a miss, and the level below answers. What a lossy
// table does hold is right: a value once written for that key (never torn, never another key's),
// and never older than one that it has shown before.
//
// A LossyTable is one incarnation of one table. Thread-safe: any number of threads may fetch and
// insert; Update, Erase and RaiseWatermarks are for the table's applier, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "hps/span.h"
#include "hps/statistics.h"
#include "hps/table_spec.h"
#include "tier/fence.h"
#include "tier/fetch_batch.h"

namespace hps {

// Rows for a tier to take, borrowed for the call. Later duplicates of a key win within one batch.
struct RowBatch {
  std::span<const Key> keys;            // [n]
  HostRows rows;                        // n rows; row i is not read where absent[i] is set
  std::span<const Version> versions{};  // [n]; empty = all 0
  std::span<const uint8_t> absent{};    // [n], 1 = "no level has it"; empty = none
};

struct InsertCounts {
  uint64_t inserted = 0;
  uint64_t held = 0;     // already there: left alone
  uint64_t refused = 0;  // by the fence
  uint64_t dropped = 0;  // no room could be made in a bounded number of steps
};

class LossyTable {
 public:
  virtual ~LossyTable() = default;

  // Writes the rows of the keys that are held. A key whose state can't be decided is a kMiss only
  // if that can't make an answer older (else it is probed again).
  // Errors (outcomes are then undefined, and the caller passes the shard by): UNAVAILABLE,
  // DEADLINE_EXCEEDED. A table that can't block ignores the deadline, and its only error is
  // UNAVAILABLE where too many fetch at a time.
  virtual absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) = 0;

  // Promotion: takes rows that are not held, evicting others as the policy says. `epoch` is the
  // apply epoch read before the first fetch of these rows; the fence refuses what is older than a
  // change. Held keys are left alone (an absent entry too).
  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED; some of the rows may have been taken.
  virtual absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) = 0;

  // Change: replaces the values of held keys whose version is lower (an absent entry has version
  // 0 and yields to every change); inserts nothing. Returns the number of values replaced. A held
  // key that the new value can't be stored for is erased.
  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED; the caller then trips the shard's bypass.
  virtual absl::StatusOr<uint64_t> Update(const RowBatch& batch) = 0;

  // Change: removes keys, absent entries too. Returns the number removed. Errors: as Update.
  virtual absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) = 0;

  // The fence, see tier/fence.h. Returns when insertions that began before are done.
  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED; the caller then trips the shard's bypass.
  virtual absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                       Deadline deadline) = 0;

  // Removes everything; watermarks stay.
  virtual absl::Status Clear() = 0;

  virtual LevelStatistics Statistics() const = 0;

  // The keys of rows that are held, keys.size() of them at most, those first that would be evicted
  // last; returns how many. A hint for filling another table: of rows that come, go or are used
  // meanwhile, some may be left out, and some named though they are gone. Looks at every row.
  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED.
  virtual absl::StatusOr<size_t> WarmestKeys(std::span<Key> keys, Deadline deadline) const = 0;

  // Whether Fetch may wait for something outside this process. A table that can't block may be
  // given the caller's own output buffer; one that can gets scratch only.
  virtual bool can_block() const = 0;
};

// A level: makes tables within a budget of bytes. Thread-safe.
class LossyTier {
 public:
  virtual ~LossyTier() = default;

  // An empty table for one incarnation. `bytes_max` is its share of the level, metadata included.
  // Errors: RESOURCE_EXHAUSTED when the budget can't hold a useful table (says how many bytes
  // would), INVALID_ARGUMENT for an invalid spec.
  virtual absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                                Incarnation incarnation,
                                                                uint64_t bytes_max) = 0;
};

}  // namespace hps
