// One incarnation of one table in RocksDB: see tier/durable_tier.h for the contract.
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

// Where the rows of one incarnation are read. One that a reader has moves on to each newer state of
// the store that has the same rows, so that the older states can go, with the memory and the files
// that they hold. Thread-safe.
class StoreTableSource {
 public:
  // `moves`: MoveTo may be called.
  StoreTableSource(Database::Pin pin, bool moves) : moves_(moves), pin_(std::move(pin)) {}

  // REQUIRES: `newer` has the same incarnation, with the same rows.
  void MoveTo(Database::Pin newer);
  // A newer state has other rows, or none.
  void Outdate() { outdated_ = true; }
  bool outdated() const { return outdated_; }

  Database::Pin Share() const;
  // What `use` returns of the pin, which stays for as long as it takes.
  template <typename Use>
  auto With(Use use) const {
    return moves_ ? use(Share()) : use(pin_);
  }

 private:
  const bool moves_;
  std::atomic<bool> outdated_{false};
  mutable Mutex mutex_;  // of pin_, where it moves
  Database::Pin pin_;
};

class RocksTable final : public DurableTable {
 public:
  explicit RocksTable(std::shared_ptr<StoreTableSource> source);

  const TableSpec& spec() const override { return spec_; }
  Incarnation incarnation() const override { return incarnation_; }
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override;
  absl::Status Write(const DurableWrite& write) override;
  absl::StatusOr<std::vector<StreamPosition>> Positions() const override;
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override;
  TableInfo Info() const override;
  bool IsCurrent() const override;

 private:
  absl::Status CheckWrite(const Database::Pin& pin, const DurableWrite& write) const;
  absl::Status WriteTo(const Database::Pin& pin, const DurableWrite& write) const;
  void PutRows(const Family& family, const DurableWrite& write, rocksdb::WriteBatch& batch) const;

  const std::shared_ptr<StoreTableSource> source_;
  const TableSpec spec_;
  const Incarnation incarnation_;
};

// The table of a family that need not be pinned: for listing.
TableInfo InfoOf(Database& database, const Family& family);

}  // namespace hps
