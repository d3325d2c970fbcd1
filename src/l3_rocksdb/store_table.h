// One incarnation of one table: its page files, and its changes in RocksDB. The contract is in
// tier/durable_tier.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "l3_rocksdb/database.h"
#include "tier/durable_tier.h"

namespace hps {

// The pinned database from which the rows of one incarnation are read. In a reader process, it
// moves to each newer state of the store that has the same rows; in a writer, to the state after a
// merge of changes. The older states, with their memory and files, can then be released.
// Thread-safe.
class StoreTableSource {
 public:
  explicit StoreTableSource(FamilyPin pin)
      : pin_(std::make_shared<const FamilyPin>(std::move(pin))) {}

  // Calls that use the older pin keep it until they end. REQUIRES: `newer` has the same
  // incarnation, with the same rows.
  void MoveTo(FamilyPin newer);
  // Call this if a newer state has other rows, or none.
  void MarkOutdated() { outdated_ = true; }
  bool outdated() const { return outdated_; }

  // The pin lives as long as the caller holds the pointer.
  std::shared_ptr<const FamilyPin> pin() const {
    MutexLock lock(mutex_);
    return pin_;
  }
  FamilyPin Share() const { return pin()->Share(); }

 private:
  std::atomic<bool> outdated_{false};
  mutable Mutex mutex_;
  std::shared_ptr<const FamilyPin> pin_ HPS_GUARDED_BY(mutex_);
};

class RocksTable final : public DurableTable {
 public:
  explicit RocksTable(std::shared_ptr<StoreTableSource> source);

  const TableSpec& spec() const override { return spec_; }
  Incarnation incarnation() const override { return incarnation_; }
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override;
  absl::Status Write(const DurableWrite& write) override;
  absl::StatusOr<std::vector<StreamPosition>> Positions() const override;
  std::vector<uint16_t> UnorderedHashes() const override;
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override;
  TableInfo Info() const override;
  bool IsCurrent() const override;

 private:
  absl::Status CheckWrite(const FamilyPin& pin, const DurableWrite& write) const;
  absl::Status WriteTo(const FamilyPin& pin, const DurableWrite& write) const;
  void PutRows(const Family& family, const DurableWrite& write, rocksdb::WriteBatch& batch) const;
  void PutRecords(const Family& family, const DurableWrite& write,
                  rocksdb::WriteBatch& batch) const;
  void PutDeletion(rocksdb::ColumnFamilyHandle* handle, Key key, Version version,
                   rocksdb::WriteBatch& batch) const;

  const std::shared_ptr<StoreTableSource> source_;
  const TableSpec spec_;
  const Incarnation incarnation_;
};

// Describes the table of a family, for lists of tables. The family need not be pinned.
TableInfo InfoOf(Database& database, const Family& family);

}  // namespace hps
