// The lossy tier: a part of level 2. It holds some rows and may lose any of them at any time.
//
// Level 2 is a list of such parts: memory, Redis, or memory and then Redis. Lookups ask the parts
// in this order (serving/l2_part.h); a part does not know the others.
//
// Losing a row is never an error: a key that is not held is a miss, and the level below answers. A
// row that is held is correct: it is a value once written for that key (never torn, never another
// key's) and never older than one shown before.
//
// A LossyTable is one incarnation of one table. Thread-safe: any number of threads may fetch and
// insert. Update, Erase and RaiseWatermarks are for the table's applier, one at a time.
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
#include "tier/admission.h"
#include "tier/direct_rows.h"
#include "tier/fence.h"
#include "tier/fetch_batch.h"

namespace hps {

// Rows to store, borrowed for the call. Of duplicate keys in a batch the last one wins.
struct RowBatch {
  std::span<const Key> keys;            // [n]
  HostRows rows;                        // n rows; row i is not read where absent[i] is set
  std::span<const Version> versions{};  // [n]; empty = all 0
  std::span<const uint8_t> absent{};    // [n], 1 = "no level has it"; empty = none
  // Of an insertion: which rows a full level takes in. Absent entries are always taken in.
  Admission admission = Admission::kAlways;
  // Of an insertion with kFrequent: how often the call asked for each key, [n]; empty = once.
  // Level 1 ignores it.
  std::span<const uint8_t> times_asked{};
};

struct InsertCounts {
  uint64_t inserted = 0;
  uint64_t held = 0;          // already held: left unchanged
  uint64_t refused = 0;       // by the fence
  uint64_t dropped = 0;       // no room was found in a bounded number of steps, or was there at all
  uint64_t not_admitted = 0;  // not asked for often enough, see RowBatch::admission
};

class LossyTable {
 public:
  virtual ~LossyTable() = default;

  // Writes the rows of held keys. A key whose state can't be decided is kMiss only if that can't
  // make an answer older; otherwise it is probed again. Errors: UNAVAILABLE, DEADLINE_EXCEEDED;
  // outcomes are then undefined and the caller bypasses the shard. A table that can't block ignores
  // the deadline; its only error is UNAVAILABLE, if too many threads fetch at a time.
  virtual absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) = 0;

  // Promotion: inserts rows that are not held, and evicts others by the eviction policy, as
  // `batch.admission` allows (a level outside this process ignores it). `epoch` is
  // the apply epoch read before the first fetch of these rows; the fence refuses rows that are
  // older than a change. Held keys, absent entries included, are left unchanged. Errors:
  // UNAVAILABLE, DEADLINE_EXCEEDED; some of the rows may have been inserted.
  virtual absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) = 0;

  // Change: replaces the values of held keys whose version is lower (an absent entry has version 0,
  // so every change replaces it). Inserts nothing. Returns the number of replaced values. If there
  // is no room for the new value of a held key, erases the key. Errors: UNAVAILABLE,
  // DEADLINE_EXCEEDED; the caller then trips the shard's bypass.
  virtual absl::StatusOr<uint64_t> Update(const RowBatch& batch) = 0;

  // Change: removes keys, including absent entries. Returns the number removed. Errors: as Update.
  virtual absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) = 0;

  // The fence, see tier/fence.h. Returns when insertions that began before have ended. Errors:
  // UNAVAILABLE, DEADLINE_EXCEEDED; the caller then trips the shard's bypass.
  virtual absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                       Deadline deadline) = 0;

  // Removes all keys. Watermarks stay.
  virtual absl::Status Clear() = 0;

  virtual LevelStatistics Statistics() const = 0;

  // Whether Fetch may wait for something outside this process. A table that can't block may get the
  // caller's own output buffer; one that can block gets only scratch memory.
  virtual bool can_block() const = 0;

  // The same table for devices that read its rows by themselves; null: they can't.
  virtual DirectReadable* direct() = 0;
};

// One table's part of a fetch from several tables.
struct TableFetch {
  LossyTable* table = nullptr;
  FetchBatch batch{};
  absl::StatusOr<FetchCounts> counts = FetchCounts();  // as LossyTable::Fetch returns it
};

// Asks the tables one after the other.
inline void FetchEach(std::span<TableFetch> fetches, Deadline deadline) {
  for (TableFetch& fetch : fetches) fetch.counts = fetch.table->Fetch(fetch.batch, deadline);
}

// Makes tables, within a byte budget if the tier has one. Thread-safe.
class LossyTier {
 public:
  virtual ~LossyTier() = default;

  // Makes an empty table for one incarnation. `bytes_max` is its share of the tier, metadata
  // included; a tier outside this process ignores it. Errors: RESOURCE_EXHAUSTED if the budget is
  // too small for a useful table (says how many bytes are needed), INVALID_ARGUMENT for an invalid
  // spec.
  virtual absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                                Incarnation incarnation,
                                                                uint64_t bytes_max) = 0;

  // As LossyTable::Fetch of each table; sets the counts of each. A tier outside this process asks
  // all tables at once: that costs one round trip to each server, however many tables there are. A
  // table that fails leaves the others their answers. REQUIRES: they are tables of this tier.
  virtual void Fetch(std::span<TableFetch> fetches, Deadline deadline) = 0;
};

}  // namespace hps
