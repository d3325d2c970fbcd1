// The durable tier (level 3): every row of every table, on disk.
//
// Acknowledged writes are never lost, however the process ends. An import replaces a whole table;
// each import creates a new incarnation, and all tables of an import switch in one step. A
// DurableTable pins its incarnation: its rows stay readable until it is destroyed, even if the
// table is imported again or dropped meanwhile.
//
// Keys are ordered as signed integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/hash.h"
#include "hps/model_network.h"
#include "hps/statistics.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "tier/fetch_batch.h"
#include "tier/lossy_tier.h"

namespace hps {

// The version of a row from generation and offset of its message. REQUIRES: offset < 2^48.
constexpr Version VersionAt(uint16_t generation, uint64_t offset) {
  return (Version{generation} << 48) | offset;
}

// The hash by which a table remembers that a key's rows have no order (docs/store_format.md).
constexpr uint16_t UnorderedHash(Key key) {
  return static_cast<uint16_t>(HashKey(key, kStreamHashSeed) >> 48);
}

// One atomic change: rows, deletions and the stream positions that the table reaches with it.
struct DurableWrite {
  RowBatch upserts;  // `absent` must be empty
  std::span<const Key> deletes{};
  std::span<const StreamPosition> positions{};  // overwrite those of the same partition
  uint64_t records_lost = 0;                    // adds to TableInfo::update_records_lost
  std::span<const Version> delete_versions{};   // [deletes] or empty; see FetchBatch::deletions
  // Of keys of this change; added to DurableTable::UnorderedHashes.
  std::span<const uint16_t> unordered_hashes{};
};

// Iterates over rows in ascending key order, as of the creation of the cursor. Not thread-safe.
class RowCursor {
 public:
  virtual ~RowCursor() = default;
  // Fills at most n keys and rows (and versions, unless empty) and returns their number; 0 = the
  // end. Errors: DATA_LOSS (names the key, or only the file if the key is unknown).
  virtual absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                                      std::span<Version> versions) = 0;
};

// One incarnation of one table. Thread-safe, but writes are for the table's applier only.
class DurableTable {
 public:
  virtual ~DurableTable() = default;

  virtual const TableSpec& spec() const = 0;
  virtual Incarnation incarnation() const = 0;

  // Sets every key to kHit, kAbsent or kLost: this is the last level. A damaged row is kLost and
  // counted, never kAbsent and never a wrong row. Fastest with keys in ascending order; any order
  // is correct. Reads kFetchPieceKeysMax keys at a time and checks the deadline between. Errors:
  // DEADLINE_EXCEEDED, UNAVAILABLE; keys that were not reached are then kMiss.
  virtual absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) = 0;

  // Atomic, and durable as the store's sync mode says. Does not compare versions: the caller orders
  // writes. Readers see a write when it is made; with sync `always`, slightly before it is durable.
  // Writes of all tables become durable in the order in which they became visible. A power cut
  // loses some of the last writes, each as a whole, but none before a write that was acknowledged
  // as durable (by Write with `always`, by Sync, or by the commit of an import). Errors:
  // FAILED_PRECONDITION (read-only, or the incarnation is not the current one): nothing was
  // written. RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the disk fails; such a call can take a
  // second): readers may see the whole batch; it becomes durable with the next durable write, or is
  // lost if the process ends first. The caller should write it again; writes succeed again once the
  // disk works.
  virtual absl::Status Write(const DurableWrite& write) = 0;

  // Ascending by partition.
  virtual absl::StatusOr<std::vector<StreamPosition>> Positions() const = 0;

  // UnorderedHash of the keys whose rows have no order: producers put them into wrong partitions of
  // the update stream since the import (docs/updates.md, "Grow a topic"). Ascending.
  virtual std::vector<uint16_t> UnorderedHashes() const = 0;

  virtual absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const = 0;

  virtual TableInfo Info() const = 0;

  // Whether opening the table now would give this incarnation with these rows. False once the table
  // was replaced or dropped and, in a read-only store, once Refresh has seen that the writer wrote
  // rows of it.
  virtual bool IsCurrent() const = 0;
};

// Approximate maximum memory that a part of an import uses between its first Add and FinishPart.
inline constexpr size_t kPartBytesMax = size_t{24} << 20;

// An import in progress: tables are filled, then all switch at once. The store does not change
// before Commit; destroying the import earlier removes what it wrote. After an error of Add or
// FinishPart the import can only be destroyed, and Commit returns that error.
class BulkImport {
 public:
  virtual ~BulkImport() = default;

  // Adds rows to table number `table` (its index in the given specs). REQUIRES: keys are strictly
  // ascending over all calls for one table. Several threads may add different tables, or different
  // ranges of one table by their `part`; the parts of a table must be ascending and must not
  // overlap. Errors: RESOURCE_EXHAUSTED (disk full), INVALID_ARGUMENT (keys out of order).
  virtual absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys,
                           HostRows rows) = 0;

  // Completes a part, to which nothing more is added, and releases its memory and open files.
  // Thread-safe as Add. Commit completes the remaining parts. Errors: RESOURCE_EXHAUSTED.
  virtual absl::Status FinishPart(size_t table, uint32_t part) = 0;

  // Where the tables of the import begin to read their update streams; the default is the
  // beginning. REQUIRES: Commit was not called.
  virtual void SetUpdateStart(const UpdateStart& start) = 0;

  // TableInfo::import_id of all tables of the import. REQUIRES: Commit was not called. Errors:
  // INVALID_ARGUMENT (ValidateImportId), FAILED_PRECONDITION (a table of that name had the id
  // before; Commit checks it again).
  virtual absl::Status SetImportId(const std::string& id) = 0;

  // Adds the dense network of a model, which switches with the tables. `network.digest` is set.
  // REQUIRES: the import has a table of the model; called once at most, before Commit. Errors:
  // RESOURCE_EXHAUSTED, UNAVAILABLE.
  virtual absl::Status SetNetwork(const std::string& model, const ModelNetwork& network) = 0;

  // Makes everything durable, then switches. Called once. If a server has the store open, leaves
  // the import staged and marked ready for it (`staged`). Errors: RESOURCE_EXHAUSTED, UNAVAILABLE
  // (another command holds the store for too long), FAILED_PRECONDITION (a table of that name now
  // has another shape). Nothing has changed then, except that a disk failure during the switch
  // leaves all tables old or all new.
  struct Result {
    bool staged = false;
    std::vector<TableInfo> tables;
  };
  virtual absl::StatusOr<Result> Commit() = 0;
};

// A staged import of a table that could not be committed and was removed.
struct RejectedImport {
  std::string table;  // empty: unknown, because the import's own list of tables is damaged
  absl::Status
      why;  // DATA_LOSS: damaged; otherwise: does not fit the store. For the log: may name paths
};

// A staged import that could not be committed and stays staged.
struct WaitingImport {
  std::set<std::string> names;  // its tables, and "MODEL/" for a network; empty: unknown
  absl::Status why;
};

struct RefreshResult {
  bool changed = false;                  // a table or a row; then reopen what is not IsCurrent()
  std::vector<WaitingImport> waiting{};  // the next Refresh tries them again
};

// The error of a Refresh, or of the first import that waits after it.
inline absl::Status ErrorOf(const absl::StatusOr<RefreshResult>& refreshed) {
  const bool waits = refreshed.ok() && !refreshed->waiting.empty();
  return waits ? refreshed->waiting.front().why : refreshed.status();
}

// The level-3 store of one node. Thread-safe.
class DurableStore {
 public:
  virtual ~DurableStore() = default;

  // The tables in the order of their first import.
  virtual absl::StatusOr<std::vector<TableInfo>> Tables() const = 0;

  // Pins the current incarnation. Errors: NOT_FOUND (names the table with the nearest name).
  virtual absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) = 0;

  // The dense network of a model, if it has one. Costs a read of all its bytes. Errors: DATA_LOSS
  // (its bytes have not the digest they were written with), those of reading.
  virtual absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string& model) const = 0;

  // Begins an import of these tables. Errors: INVALID_ARGUMENT (an invalid spec, or a duplicate
  // name), FAILED_PRECONDITION (the table exists with another dim or dtype: drop it first),
  // RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(
      std::span<const TableSpec> specs) = 0;

  // Removes a table (MODEL/TABLE) or all tables of a model (MODEL) in one step, and with the last
  // table of a model its network; works on a full disk too. Readers keep their pinned incarnation.
  // First commits staged imports that are ready, and removes the tables from those that can't be
  // committed now, so that an older import can't restore them. Errors: NOT_FOUND;
  // FAILED_PRECONDITION (the model's network reads the table, and the model has others);
  // UNAVAILABLE, RESOURCE_EXHAUSTED (the disk fails; try again).
  virtual absl::Status Drop(const std::string& name) = 0;

  // Read-write: commits staged imports that are ready. Read-only: catches up with the writer; costs
  // one directory listing if the writer wrote nothing. Open tables do not change. Errors,
  // read-write: FAILED_PRECONDITION (public: an import may not be read, or was made by another
  // version of hps), UNAVAILABLE, RESOURCE_EXHAUSTED; the order of the imports is unknown then, and
  // none is committed. Read-only: UNAVAILABLE (the writer changes the store faster than it can be
  // read), and those of opening; the view does not change then.
  virtual absl::StatusOr<RefreshResult> Refresh() = 0;

  // Data of the model's tables (MODEL/...) that opening, Refresh, an import or Drop found lost and
  // that has been neither imported again nor dropped since. Includes losses whose tables are
  // unknown, for any model. Each loss is returned once.
  virtual std::vector<RejectedImport> TakeRejectedImports(const std::string& model) = 0;

  // Makes a consistent copy of the store, a store itself, in STORE/snapshots/`name`, by hard links
  // (copies, where the file system has none) and while others write. It has every earlier write and
  // a prefix of those made meanwhile, and no staged imports. Returns the bytes of its files.
  // Errors: INVALID_ARGUMENT (the name), ALREADY_EXISTS, FAILED_PRECONDITION (another snapshot is
  // being made, or the store is open read-only), RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (the
  // disk fails). Nothing is left of it then.
  virtual absl::StatusOr<uint64_t> Snapshot(const std::string& name) = 0;

  // Makes all earlier writes durable, whatever the sync mode.
  virtual absl::Status Sync() = 0;

  virtual DurableStatistics Statistics() const = 0;
};

}  // namespace hps
