// The durable tier: every row of every table, on disk (level 3).
//
// What is acknowledged is never lost, whatever ends the process. A table is replaced as a whole by
// an import; each import is an incarnation of its own, and all tables imported together switch in
// one step. A DurableTable pins its incarnation: its rows stay readable until it is destroyed, also
// when the table has been imported again or dropped meanwhile.
//
// Keys are ordered as signed integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "hps/statistics.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "tier/fetch_batch.h"
#include "tier/lossy_tier.h"

namespace hps {

// How far a table has consumed one partition of its update stream.
struct StreamPosition {
  uint32_t partition = 0;
  uint16_t generation = 1;  // of the topic; grows when its partitions are counted anew
  uint64_t offset = 0;      // the next one to read

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

// One atomic change: rows, deletions and the positions that they bring the table to.
struct DurableWrite {
  RowBatch upserts;  // `absent` must be empty
  std::span<const Key> deletes{};
  std::span<const StreamPosition> positions{};  // replace those of the same partition
};

// Rows in ascending order of keys, as of the moment the cursor was made. For one thread.
class RowCursor {
 public:
  virtual ~RowCursor() = default;
  // Fills at most n keys and rows (and versions, unless empty) and returns how many; 0 = the end.
  // Errors: DATA_LOSS (names the key, or the file when that is all that can be told).
  virtual absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                                      std::span<Version> versions) = 0;
};

// One incarnation of one table. Thread-safe, but writes are for the table's applier alone.
class DurableTable {
 public:
  virtual ~DurableTable() = default;

  virtual const TableSpec& spec() const = 0;
  virtual Incarnation incarnation() const = 0;

  // Every key gets kHit, kAbsent or kLost: this tier has the last word. A damaged row is kLost and
  // counted; it never is kAbsent and never a wrong row. Fastest with keys in ascending order; any
  // order is right. Reads in pieces of kFetchPieceKeysMax and looks at the deadline between them.
  // Errors: DEADLINE_EXCEEDED, UNAVAILABLE; outcomes are then kMiss for the keys not reached.
  virtual absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) = 0;

  // Atomic, and durable as the store's sync mode says. Blind: the caller orders versions.
  // Readers see a write once it is made; with sync `always`, a moment before it is durable. Writes,
  // of all tables, become durable in the order in which they could be seen: a power cut takes some
  // of the last ones, each as a whole, but none before one that was acknowledged as durable (by
  // Write with `always`, by Sync, by the commit of an import).
  // Errors: FAILED_PRECONDITION (read-only, or the incarnation is no longer the current one), and
  // nothing has been written; RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the disk fails; a call
  // can take a second then): readers may see the batch, as a whole. Then it becomes durable with
  // the next write that does, or is gone when the process ends before. Write it again: writing
  // goes on by itself once the disk works.
  virtual absl::Status Write(const DurableWrite& write) = 0;

  // By partition, ascending.
  virtual absl::StatusOr<std::vector<StreamPosition>> Positions() const = 0;

  virtual absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const = 0;

  virtual TableInfo Info() const = 0;

  // Whether the table would be this one, with these rows, if it were opened now. No longer once it
  // was replaced or dropped; of a store that is open read-only, no longer once Refresh has seen
  // that the writer wrote rows of it.
  virtual bool IsCurrent() const = 0;
};

// Memory that a part of an import takes from its first Add to its FinishPart, at most (about).
inline constexpr size_t kPartBytesMax = size_t{24} << 20;

// An import in the making: tables are filled, then all switch at once. Nothing of the store changes
// before Commit; destroying it earlier removes what it wrote. After an error of Add or FinishPart
// it can only be destroyed: Commit returns that error.
class BulkImport {
 public:
  virtual ~BulkImport() = default;

  // Adds rows to table number `table` (its index in the specs given). REQUIRES: keys strictly
  // ascending over all calls for one table. Different tables, and different ranges of one table
  // by their `part`, may be added from different threads; parts of a table must be ascending and
  // must not overlap.
  // Errors: RESOURCE_EXHAUSTED (disk full), INVALID_ARGUMENT (keys out of order).
  virtual absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys,
                           HostRows rows) = 0;

  // Completes a part, of which nothing is added any more: from here on it takes no memory and no
  // open file. Thread-safe as Add. Commit completes what has not been. Errors: RESOURCE_EXHAUSTED.
  virtual absl::Status FinishPart(size_t table, uint32_t part) = 0;

  // Makes everything durable, then switches, or, when a server has the store, leaves the import
  // for it, marked ready (`staged`).
  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE (another command holds the store for too long),
  // FAILED_PRECONDITION (a table of that name has another shape now); nothing has changed then,
  // but that a disk which fails in the very switch leaves all tables old or all new.
  struct Result {
    bool staged = false;
    std::vector<TableInfo> tables;
  };
  virtual absl::StatusOr<Result> Commit() = 0;
};

// A table's import that was left staged, could never be committed and has been removed.
struct RejectedImport {
  std::string table;  // empty: nobody can tell, the import's own list of tables is damaged
  absl::Status why;   // DATA_LOSS: damaged; else it does not fit. For the log: it may name paths
};

// The store of one node. Thread-safe.
class DurableStore {
 public:
  virtual ~DurableStore() = default;

  // In the order of first import.
  virtual absl::StatusOr<std::vector<TableInfo>> Tables() const = 0;

  // Pins the current incarnation. Errors: NOT_FOUND, which names the nearest table.
  virtual absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) = 0;

  // Begins an import of these tables. Errors: INVALID_ARGUMENT (a spec, or a name twice),
  // FAILED_PRECONDITION (exists with another dim or dtype: drop it first), RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(
      std::span<const TableSpec> specs) = 0;

  // Removes a table, also on a full disk; its readers keep what they have pinned. Commits the
  // imports that were left staged and ready first, and takes the table out of those that can't be
  // committed now: one from before must not bring it back.
  // Errors: NOT_FOUND; UNAVAILABLE, RESOURCE_EXHAUSTED (the disk fails; try again).
  virtual absl::Status Drop(const std::string& name) = 0;

  // Read-write: commits imports that were left staged and ready. Read-only: catches up with the
  // writer, at the cost of a look at the directory when it wrote nothing; tables opened before stay
  // as they were. Returns whether any table, or any row of one, changed: open those anew then that
  // are not IsCurrent().
  // Errors, read-only: UNAVAILABLE (the writer changes the store faster than it can be read), and
  // those of opening; what was seen before stays.
  virtual absl::StatusOr<bool> Refresh() = 0;

  // What was lost of the model's tables (MODEL/...), by opening, Refresh, an import or Drop, and
  // has neither been imported again nor dropped since; and what nobody can tell the tables of,
  // whatever the model. Each is told once.
  virtual std::vector<RejectedImport> TakeRejectedImports(const std::string& model) = 0;

  // Makes everything written so far durable, whatever the sync mode.
  virtual absl::Status Sync() = 0;

  virtual DurableStatistics Statistics() const = 0;
};

}  // namespace hps
