// Decorators for tests of the read path: they record what a level is asked for and when it is
// freed, and make single keys of L3 lost.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"

namespace hps {

// Shared by the test and the table, which may outlive each other.
struct TableLog {
  std::atomic<uint64_t> fetches{0};
  std::atomic<uint64_t> keys_fetched{0};
  std::atomic<uint64_t> unsorted_fetches{0};  // keys not strictly ascending
  std::atomic<uint64_t> inserts{0};
  std::atomic<Deadline> last_deadline{kNoDeadline};  // of a fetch
  std::atomic<bool> destroyed{false};
};
using SharedTableLog = std::shared_ptr<TableLog>;

inline void RecordFetch(std::span<const Key> keys, TableLog& log) {
  ++log.fetches;
  log.keys_fetched += keys.size();
  for (size_t i = 1; i < keys.size(); ++i) {
    if (keys[i - 1] < keys[i]) continue;
    ++log.unsorted_fetches;
    return;
  }
}

class ObservedDurableTable final : public DurableTable {
 public:
  ObservedDurableTable(std::unique_ptr<DurableTable> table, SharedTableLog log,
                       std::set<Key> lost_keys = {})
      : table_(std::move(table)), log_(std::move(log)), lost_keys_(std::move(lost_keys)) {}
  ~ObservedDurableTable() override { log_->destroyed = true; }

  const TableSpec& spec() const override { return table_->spec(); }
  Incarnation incarnation() const override { return table_->incarnation(); }

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    RecordFetch(batch.keys, *log_);
    log_->last_deadline = deadline;
    absl::StatusOr<FetchCounts> counts = table_->Fetch(batch, deadline);
    if (!counts.ok()) return counts;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (!lost_keys_.contains(batch.keys[i])) continue;
      --(batch.outcomes[i] == FetchOutcome::kHit ? counts->hits : counts->absent);
      batch.outcomes[i] = FetchOutcome::kLost;
      ++counts->lost;
    }
    return counts;
  }

  absl::Status Write(const DurableWrite& write) override { return table_->Write(write); }
  absl::StatusOr<std::vector<StreamPosition>> Positions() const override {
    return table_->Positions();
  }
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override { return table_->Scan(); }
  std::vector<uint16_t> UnorderedHashes() const override { return table_->UnorderedHashes(); }
  TableInfo Info() const override { return table_->Info(); }
  bool IsCurrent() const override { return table_->IsCurrent(); }

 private:
  const std::unique_ptr<DurableTable> table_;
  const SharedTableLog log_;
  const std::set<Key> lost_keys_;
};

class ObservedLossyTable final : public LossyTable {
 public:
  ObservedLossyTable(std::unique_ptr<LossyTable> table, SharedTableLog log)
      : table_(std::move(table)), log_(std::move(log)) {}
  ~ObservedLossyTable() override { log_->destroyed = true; }

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    RecordFetch(batch.keys, *log_);
    return table_->Fetch(batch, deadline);
  }
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override {
    ++log_->inserts;
    return table_->Insert(batch, epoch);
  }
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override { return table_->Update(batch); }
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override { return table_->Erase(keys); }
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    return table_->RaiseWatermarks(keys, epoch, deadline);
  }
  absl::Status Clear() override { return table_->Clear(); }
  LevelStatistics Statistics() const override { return table_->Statistics(); }
  bool can_block() const override { return table_->can_block(); }
  DirectReadable* direct() override { return nullptr; }

 private:
  const std::unique_ptr<LossyTable> table_;
  const SharedTableLog log_;
};

}  // namespace hps
