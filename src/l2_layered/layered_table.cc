#include "l2_layered/layered_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/macros.h"

namespace hps {

LayeredTable::LayeredTable(std::unique_ptr<LossyTable> near, std::unique_ptr<LossyTable> far,
                           size_t row_bytes)
    : near_(std::move(near)), far_(std::move(far)), row_bytes_(row_bytes) {}

class LayeredTable::MissesLease {
 public:
  MissesLease() {
    if (free().empty()) free().push_back(std::make_unique<Misses>());
    misses_ = std::move(free().back());
    free().pop_back();
  }
  ~MissesLease() { free().push_back(std::move(misses_)); }
  MissesLease(const MissesLease&) = delete;
  MissesLease& operator=(const MissesLease&) = delete;

  Misses& operator*() const { return *misses_; }

 private:
  static std::vector<std::unique_ptr<Misses>>& free() {
    thread_local std::vector<std::unique_ptr<Misses>> free;
    return free;
  }

  std::unique_ptr<Misses> misses_;
};

absl::StatusOr<FetchCounts> LayeredTable::Fetch(const FetchBatch& batch, Deadline deadline) {
  const uint64_t raised = raises_ended_.load(std::memory_order_seq_cst);
  HPS_ASSIGN_OR_RETURN(FetchCounts counts, near_->Fetch(batch, deadline));
  if (batch.near_only || counts.misses == 0) return counts;
  const MissesLease lease;
  Misses& misses = *lease;
  List(batch, misses);
  HPS_RETURN_IF_ERROR(far_->Fetch(BatchOf(misses), deadline).status());
  if (raises_begun_.load(std::memory_order_seq_cst) != raised)
    HPS_RETURN_IF_ERROR(AskNearAgain(misses));
  Answer(misses, batch, counts);
  if (batch.epoch.has_value()) CopyIntoNear(misses, *batch.epoch);
  return counts;
}

void LayeredTable::List(const FetchBatch& batch, Misses& misses) const {
  misses.positions.clear();
  misses.keys.clear();
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    if (batch.outcomes[i] != FetchOutcome::kMiss) continue;
    misses.positions.push_back(static_cast<uint32_t>(i));
    misses.keys.push_back(batch.keys[i]);
  }
  const size_t count = misses.keys.size();
  if (misses.rows.size() < count * row_bytes_) misses.rows.resize(count * row_bytes_);
  misses.outcomes.resize(count);
  misses.versions.assign(count, 0);
}

FetchBatch LayeredTable::BatchOf(Misses& misses) const {
  return {.keys = misses.keys,
          .rows = {.data = misses.rows.data(),
                   .row_count = misses.keys.size(),
                   .row_bytes = row_bytes_,
                   .stride_bytes = row_bytes_},
          .outcomes = misses.outcomes,
          .versions = misses.versions};
}

absl::Status LayeredTable::AskNearAgain(Misses& misses) {
  misses.near_outcomes.resize(misses.keys.size());
  FetchBatch batch = BatchOf(misses);
  batch.outcomes = misses.near_outcomes;
  HPS_RETURN_IF_ERROR(near_->Fetch(batch, kNoDeadline).status());
  for (size_t i = 0; i < misses.keys.size(); ++i) {
    if (misses.near_outcomes[i] != FetchOutcome::kMiss)
      misses.outcomes[i] = misses.near_outcomes[i];
  }
  return absl::OkStatus();
}

void LayeredTable::Answer(const Misses& misses, const FetchBatch& batch,
                          FetchCounts& counts) const {
  for (size_t i = 0; i < misses.keys.size(); ++i) {
    const FetchOutcome outcome = misses.outcomes[i];
    if (outcome == FetchOutcome::kMiss) continue;
    const uint32_t position = misses.positions[i];
    --counts.misses;
    batch.outcomes[position] = outcome;
    if (outcome == FetchOutcome::kAbsent) {
      ++counts.absent;
      continue;
    }
    ++counts.hits;
    std::memcpy(batch.rows.row(position), &misses.rows[i * row_bytes_], row_bytes_);
    if (!batch.versions.empty()) batch.versions[position] = misses.versions[i];
  }
}

void LayeredTable::CopyIntoNear(Misses& misses, ApplyEpoch epoch) {
  size_t kept = 0;
  misses.absent.resize(misses.keys.size());
  for (size_t i = 0; i < misses.keys.size(); ++i) {
    if (misses.outcomes[i] == FetchOutcome::kMiss) continue;
    const bool is_absent = misses.outcomes[i] == FetchOutcome::kAbsent;
    misses.keys[kept] = misses.keys[i];
    misses.versions[kept] = is_absent ? 0 : misses.versions[i];
    misses.absent[kept] = is_absent ? 1 : 0;
    if (kept != i)
      std::memcpy(&misses.rows[kept * row_bytes_], &misses.rows[i * row_bytes_], row_bytes_);
    ++kept;
  }
  if (kept == 0) return;
  // What is not copied is found in the far part again.
  near_
      ->Insert({.keys = std::span(misses.keys).first(kept),
                .rows = {.data = misses.rows.data(),
                         .row_count = kept,
                         .row_bytes = row_bytes_,
                         .stride_bytes = row_bytes_},
                .versions = std::span(misses.versions).first(kept),
                .absent = std::span(misses.absent).first(kept),
                .admission = Admission::kFrequent},
               epoch)
      .IgnoreError();
}

absl::StatusOr<InsertCounts> LayeredTable::Insert(const RowBatch& batch, ApplyEpoch epoch) {
  // The near part does not wait for the far one.
  HPS_ASSIGN_OR_RETURN(InsertCounts counts, near_->Insert(batch, epoch));
  HPS_ASSIGN_OR_RETURN(const InsertCounts far, far_->Insert(batch, epoch));
  // A row that one part has taken has found room.
  counts.dropped = std::min(counts.dropped, far.dropped);
  return counts;
}

absl::StatusOr<uint64_t> LayeredTable::Update(const RowBatch& batch) {
  const absl::StatusOr<uint64_t> far = far_->Update(batch);
  HPS_ASSIGN_OR_RETURN(const uint64_t near, near_->Update(batch));
  HPS_RETURN_IF_ERROR(far.status());
  return std::max(near, *far);
}

absl::StatusOr<uint64_t> LayeredTable::Erase(std::span<const Key> keys) {
  const absl::StatusOr<uint64_t> far = far_->Erase(keys);
  HPS_ASSIGN_OR_RETURN(const uint64_t near, near_->Erase(keys));
  HPS_RETURN_IF_ERROR(far.status());
  return std::max(near, *far);
}

absl::Status LayeredTable::RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                           Deadline deadline) {
  const uint64_t raise = 1 + raises_begun_.fetch_add(1, std::memory_order_seq_cst);
  HPS_RETURN_IF_ERROR(near_->RaiseWatermarks(keys, epoch, deadline));
  HPS_RETURN_IF_ERROR(far_->RaiseWatermarks(keys, epoch, deadline));
  raises_ended_.store(raise, std::memory_order_seq_cst);
  return absl::OkStatus();
}

absl::Status LayeredTable::Clear() {
  const absl::Status far = far_->Clear();
  HPS_RETURN_IF_ERROR(near_->Clear());
  return far;
}

LevelStatistics LayeredTable::Statistics() const {
  LevelStatistics statistics = near_->Statistics();
  statistics.dropped += far_->Statistics().dropped;
  return statistics;
}

absl::StatusOr<size_t> LayeredTable::HottestKeys(std::span<Key> keys, Deadline deadline) const {
  return near_->HottestKeys(keys, deadline);
}

}  // namespace hps
