// The tiers on a std::map: obviously correct, slow, unbounded. They test the decorators and the
// contract suites, and stand in for real tiers in tests of other units.
//
// Thread-safe (one lock per table).
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"

namespace hps {

struct PlainRow {
  std::vector<std::byte> bytes;
  Version version = 0;
  bool absent = false;
};

inline PlainRow PlainRowOf(const RowBatch& batch, size_t i) {
  PlainRow row;
  row.absent = !batch.absent.empty() && batch.absent[i] != 0;
  if (!row.absent) row.bytes.assign(batch.rows.row(i), batch.rows.row(i) + batch.rows.row_bytes);
  if (!batch.versions.empty() && !row.absent) row.version = batch.versions[i];
  return row;
}

// Answers one batch from a map; keys that are not in the map get the outcome `lacking`.
inline FetchCounts FetchFromMap(const std::map<Key, PlainRow>& rows, const FetchBatch& batch,
                                FetchOutcome lacking) {
  FetchCounts counts;
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    const auto found = rows.find(batch.keys[i]);
    FetchOutcome outcome = lacking;
    if (found != rows.end()) {
      outcome = found->second.absent ? FetchOutcome::kAbsent : FetchOutcome::kHit;
    }
    batch.outcomes[i] = outcome;
    counts.misses += outcome == FetchOutcome::kMiss;
    counts.absent += outcome == FetchOutcome::kAbsent;
    counts.hits += outcome == FetchOutcome::kHit;
    if (outcome != FetchOutcome::kHit) continue;
    std::memcpy(batch.rows.row(i), found->second.bytes.data(), batch.rows.row_bytes);
    if (!batch.versions.empty()) batch.versions[i] = found->second.version;
  }
  return counts;
}

class PlainLossyTable final : public LossyTable {
 public:
  explicit PlainLossyTable(uint64_t bytes_max = UINT64_MAX) : bytes_max_(bytes_max), fence_(0) {}

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline) override {
    MutexLock lock(mutex_);
    return FetchFromMap(rows_, batch, FetchOutcome::kMiss);
  }

  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override {
    Fence::Insertion insertion(fence_, epoch);
    MutexLock lock(mutex_);
    InsertCounts counts;
    std::map<Key, PlainRow> taken;  // the last duplicate wins, held keys are left unchanged
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (!insertion.Admits(batch.keys[i])) {
        ++counts.refused;
      } else if (rows_.contains(batch.keys[i]) || taken.contains(batch.keys[i])) {
        ++counts.held;
        if (!rows_.contains(batch.keys[i])) taken[batch.keys[i]] = PlainRowOf(batch, i);
      } else {
        ++counts.inserted;
        taken[batch.keys[i]] = PlainRowOf(batch, i);
      }
    }
    rows_.merge(taken);
    statistics_.insertions += counts.inserted;
    statistics_.refused += counts.refused;
    return counts;
  }

  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override {
    MutexLock lock(mutex_);
    uint64_t replaced = 0;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      const auto found = rows_.find(batch.keys[i]);
      PlainRow row = PlainRowOf(batch, i);
      if (found == rows_.end()) continue;
      if (!found->second.absent && found->second.version >= row.version) continue;
      found->second = std::move(row);
      ++replaced;
    }
    statistics_.updates += replaced;
    return replaced;
  }

  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override {
    MutexLock lock(mutex_);
    uint64_t erased = 0;
    for (Key key : keys) erased += rows_.erase(key);
    return erased;
  }

  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    return fence_.Raise(keys, epoch, deadline);
  }

  absl::Status Clear() override {
    MutexLock lock(mutex_);
    rows_.clear();
    return absl::OkStatus();
  }

  LevelStatistics Statistics() const override {
    MutexLock lock(mutex_);
    LevelStatistics statistics = statistics_;
    statistics.bytes_max = bytes_max_;
    for (const auto& [key, row] : rows_) {
      ++(row.absent ? statistics.absent_entries : statistics.entries);
      statistics.bytes_used += row.bytes.size();
    }
    return statistics;
  }

  bool can_block() const override { return false; }
  DirectReadable* direct() override { return nullptr; }

 private:
  const uint64_t bytes_max_;
  Fence fence_;
  mutable Mutex mutex_;
  std::map<Key, PlainRow> rows_ HPS_GUARDED_BY(mutex_);
  LevelStatistics statistics_ HPS_GUARDED_BY(mutex_);
};

class PlainLossyTier final : public LossyTier {
 public:
  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec, Incarnation,
                                                        uint64_t bytes_max) override {
    HPS_RETURN_IF_ERROR(ValidateTableSpec(spec));
    return std::make_unique<PlainLossyTable>(bytes_max);
  }
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    FetchEach(fetches, deadline);
  }
};

class PlainDurableTable final : public DurableTable {
 public:
  explicit PlainDurableTable(TableSpec spec, Incarnation incarnation = 1)
      : spec_(std::move(spec)), incarnation_(incarnation) {}

  const TableSpec& spec() const override { return spec_; }
  Incarnation incarnation() const override { return incarnation_; }

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline) override {
    MutexLock lock(mutex_);
    return FetchFromMap(rows_, batch, FetchOutcome::kAbsent);
  }

  absl::Status Write(const DurableWrite& write) override {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < write.upserts.keys.size(); ++i)
      rows_[write.upserts.keys[i]] = PlainRowOf(write.upserts, i);
    for (Key key : write.deletes) rows_.erase(key);
    for (const StreamPosition& position : write.positions)
      positions_[position.partition] = position;
    records_lost_ += write.records_lost;
    unordered_.insert(write.unordered_hashes.begin(), write.unordered_hashes.end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StreamPosition>> Positions() const override {
    MutexLock lock(mutex_);
    std::vector<StreamPosition> positions;
    for (const auto& [partition, position] : positions_) positions.push_back(position);
    return positions;
  }

  std::vector<uint16_t> UnorderedHashes() const override {
    MutexLock lock(mutex_);
    return {unordered_.begin(), unordered_.end()};
  }

  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override {
    MutexLock lock(mutex_);
    return std::make_unique<Cursor>(rows_);
  }

  TableInfo Info() const override {
    MutexLock lock(mutex_);
    TableInfo info{.spec = spec_, .incarnation = incarnation_, .row_count = rows_.size()};
    info.bytes = rows_.size() * spec_.row_bytes();
    for (const auto& [partition, position] : positions_) info.positions.push_back(position);
    info.update_records_lost = records_lost_;
    return info;
  }

  bool IsCurrent() const override { return true; }

 private:
  class Cursor final : public RowCursor {
   public:
    explicit Cursor(std::map<Key, PlainRow> rows) : rows_(std::move(rows)), next_(rows_.begin()) {}
    absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                                std::span<Version> versions) override {
      size_t count = 0;
      for (; count < keys.size() && next_ != rows_.end(); ++count, ++next_) {
        keys[count] = next_->first;
        std::memcpy(rows.row(count), next_->second.bytes.data(), rows.row_bytes);
        if (!versions.empty()) versions[count] = next_->second.version;
      }
      return count;
    }

   private:
    const std::map<Key, PlainRow> rows_;
    std::map<Key, PlainRow>::const_iterator next_;
  };

  const TableSpec spec_;
  const Incarnation incarnation_;
  mutable Mutex mutex_;
  std::map<Key, PlainRow> rows_ HPS_GUARDED_BY(mutex_);
  std::map<uint32_t, StreamPosition> positions_ HPS_GUARDED_BY(mutex_);
  uint64_t records_lost_ HPS_GUARDED_BY(mutex_) = 0;
  std::set<uint16_t> unordered_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
