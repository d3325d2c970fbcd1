// For tests: two tiers, one after the other, as one tier, so that the contract of a lossy tier can
// be checked of a list of parts (serving/l2_part.h). It asks the parts and changes them in the
// order in which lookups and the write path do, without their concurrency and their faults.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "tier/lossy_tier.h"

namespace hps {

class ListedTable final : public LossyTable {
 public:
  ListedTable(std::unique_ptr<LossyTable> first, std::unique_ptr<LossyTable> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  // From now on, copies what the second table has into the first one, as promotions of this epoch.
  void CopyFrom(ApplyEpoch epoch) { copy_epoch_ = epoch; }

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    HPS_ASSIGN_OR_RETURN(FetchCounts counts, first_->Fetch(batch, deadline));
    const size_t row_bytes = batch.rows.row_bytes;
    std::vector<size_t> missed;
    std::vector<Key> keys;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (batch.outcomes[i] != FetchOutcome::kMiss) continue;
      missed.push_back(i);
      keys.push_back(batch.keys[i]);
    }
    std::vector<std::byte> rows(keys.size() * row_bytes);
    std::vector<FetchOutcome> outcomes(keys.size());
    std::vector<Version> versions(keys.size());
    HPS_RETURN_IF_ERROR(second_
                            ->Fetch({.keys = keys,
                                     .rows = {rows.data(), keys.size(), row_bytes, row_bytes},
                                     .outcomes = outcomes,
                                     .versions = versions},
                                    deadline)
                            .status());
    for (size_t i = 0; i < missed.size(); ++i) {
      batch.outcomes[missed[i]] = outcomes[i];
      if (outcomes[i] == FetchOutcome::kMiss) continue;
      if (copy_epoch_.has_value()) {
        const uint8_t absent = outcomes[i] == FetchOutcome::kAbsent ? 1 : 0;
        HPS_RETURN_IF_ERROR(first_
                                ->Insert({.keys = {&keys[i], 1},
                                          .rows = {&rows[i * row_bytes], 1, row_bytes, row_bytes},
                                          .versions = {&versions[i], 1},
                                          .absent = {&absent, 1}},
                                         *copy_epoch_)
                                .status());
      }
      --counts.misses;
      ++(outcomes[i] == FetchOutcome::kHit ? counts.hits : counts.absent);
      if (outcomes[i] != FetchOutcome::kHit) continue;
      std::memcpy(batch.rows.row(missed[i]), &rows[i * row_bytes], row_bytes);
      if (!batch.versions.empty()) batch.versions[missed[i]] = versions[i];
    }
    return counts;
  }
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override {
    HPS_ASSIGN_OR_RETURN(InsertCounts counts, first_->Insert(batch, epoch));
    HPS_ASSIGN_OR_RETURN(const InsertCounts second, second_->Insert(batch, epoch));
    counts.dropped = std::min(counts.dropped, second.dropped);
    return counts;
  }
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override {
    HPS_ASSIGN_OR_RETURN(const uint64_t second, second_->Update(batch));
    HPS_ASSIGN_OR_RETURN(const uint64_t first, first_->Update(batch));
    return std::max(first, second);
  }
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override {
    HPS_ASSIGN_OR_RETURN(const uint64_t second, second_->Erase(keys));
    HPS_ASSIGN_OR_RETURN(const uint64_t first, first_->Erase(keys));
    return std::max(first, second);
  }
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    HPS_RETURN_IF_ERROR(first_->RaiseWatermarks(keys, epoch, deadline));
    return second_->RaiseWatermarks(keys, epoch, deadline);
  }
  absl::Status Clear() override {
    HPS_RETURN_IF_ERROR(second_->Clear());
    return first_->Clear();
  }
  LevelStatistics Statistics() const override { return first_->Statistics(); }
  bool can_block() const override { return second_->can_block(); }
  DirectReadable* direct() override { return nullptr; }

 private:
  const std::unique_ptr<LossyTable> first_;
  const std::unique_ptr<LossyTable> second_;
  std::optional<ApplyEpoch> copy_epoch_;
};

class ListedTier final : public LossyTier {
 public:
  ListedTier(std::unique_ptr<LossyTier> first, std::unique_ptr<LossyTier> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t bytes_max) override {
    HPS_ASSIGN_OR_RETURN(auto first, first_->OpenTable(spec, incarnation, bytes_max));
    HPS_ASSIGN_OR_RETURN(auto second, second_->OpenTable(spec, incarnation, bytes_max));
    return std::make_unique<ListedTable>(std::move(first), std::move(second));
  }
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    FetchEach(fetches, deadline);
  }

 private:
  const std::unique_ptr<LossyTier> first_;
  const std::unique_ptr<LossyTier> second_;
};

}  // namespace hps
