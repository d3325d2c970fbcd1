// One incarnation of one table in RocksDB: see tier/durable_tier.h for the contract.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "l3_rocksdb/database.h"
#include "tier/durable_tier.h"

namespace hps {

class RocksTable final : public DurableTable {
 public:
  explicit RocksTable(Database::Pin pin) : pin_(std::move(pin)) {}

  const TableSpec& spec() const override { return pin_.family().table.spec; }
  Incarnation incarnation() const override { return pin_.family().table.incarnation; }
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override;
  absl::Status Write(const DurableWrite& write) override;
  absl::StatusOr<std::vector<StreamPosition>> Positions() const override;
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override;
  TableInfo Info() const override;
  bool IsCurrent() const override { return pin_.family().current && !*pin_.family().outdated; }

 private:
  absl::Status CheckWrite(const DurableWrite& write) const;

  const Database::Pin pin_;
};

// The table of a family that need not be pinned: for listing.
TableInfo InfoOf(Database& database, const Family& family);

}  // namespace hps
