#include "l2_layered/layered_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "base/macros.h"

namespace hps {

LayeredTable::LayeredTable(std::unique_ptr<LossyTable> near, std::unique_ptr<LossyTable> far,
                           size_t row_bytes)
    : near_(std::move(near)), far_(std::move(far)), row_bytes_(row_bytes) {}

absl::StatusOr<FetchCounts> LayeredTable::Fetch(const FetchBatch& batch, Deadline deadline) {
  LayeredFetch fetch(*this, batch);
  if (fetch.AskNear(deadline)) fetch.TakeFar(far_->Fetch(fetch.far_batch(), deadline));
  return fetch.counts();
}

LayeredFetch::LayeredFetch(LayeredTable& table, const FetchBatch& batch)
    : table_(table), batch_(batch) {}

// A thread keeps the rows of one large fetch, or of several small ones. Allocates nothing.
LayeredFetch::~LayeredFetch() {
  if (misses_ == nullptr) return;
  std::vector<std::unique_ptr<Misses>>& free = FreeMisses();
  size_t kept_bytes = misses_->rows.capacity();
  for (const std::unique_ptr<Misses>& misses : free) kept_bytes += misses->rows.capacity();
  if (kept_bytes <= kFetchTaskRowBytesMax && free.size() < free.capacity())
    free.push_back(std::move(misses_));
}

std::vector<std::unique_ptr<LayeredFetch::Misses>>& LayeredFetch::FreeMisses() {
  constexpr size_t kKeptMax = 32;  // the tables of one call
  thread_local std::vector<std::unique_ptr<Misses>> free;
  free.reserve(kKeptMax);
  return free;
}

bool LayeredFetch::AskNear(Deadline deadline) {
  raised_ = table_.raises_ended_.load(std::memory_order_seq_cst);
  counts_ = table_.near_->Fetch(batch_, deadline);
  if (!counts_.ok() || batch_.near_only || counts_->misses == 0) return false;
  ListMisses();
  return true;
}

// A key that came twice would also count twice for its admission to the near part.
void LayeredFetch::ListMisses() {
  std::vector<std::unique_ptr<Misses>>& free = FreeMisses();
  if (free.empty()) {
    misses_ = std::make_unique<Misses>();
  } else {
    misses_ = std::move(free.back());
    free.pop_back();
  }
  Misses& misses = *misses_;
  misses.positions.clear();
  misses.keys.clear();
  for (size_t i = 0; i < batch_.keys.size(); ++i) {
    if (batch_.outcomes[i] == FetchOutcome::kMiss)
      misses.positions.push_back(static_cast<uint32_t>(i));
  }
  const auto key_of = [this](uint32_t position) { return batch_.keys[position]; };
  std::ranges::sort(misses.positions, {}, key_of);
  for (const uint32_t position : misses.positions) {
    if (misses.keys.empty() || misses.keys.back() != key_of(position))
      misses.keys.push_back(key_of(position));
  }
  const size_t bytes = misses.keys.size() * table_.row_bytes_;
  if (misses.rows.size() < bytes) misses.rows.resize(bytes);
  misses.outcomes.resize(misses.keys.size());
  misses.versions.assign(misses.keys.size(), 0);
}

FetchBatch LayeredFetch::far_batch() {
  return {.keys = misses_->keys,
          .rows = {.data = misses_->rows.data(),
                   .row_count = misses_->keys.size(),
                   .row_bytes = table_.row_bytes_,
                   .stride_bytes = table_.row_bytes_},
          .outcomes = misses_->outcomes,
          .versions = misses_->versions};
}

void LayeredFetch::TakeFar(const absl::StatusOr<FetchCounts>& answered) {
  if (misses_ == nullptr) return;
  absl::Status status = answered.status();
  if (status.ok() && table_.raises_begun_.load(std::memory_order_seq_cst) != raised_)
    status = AskNearAgain();
  if (!status.ok()) {
    counts_ = status;
    return;
  }
  Answer(*counts_);
  if (batch_.epoch.has_value()) CopyIntoNear(*batch_.epoch);
}

absl::Status LayeredFetch::AskNearAgain() {
  Misses& misses = *misses_;
  misses.near_outcomes.resize(misses.keys.size());
  FetchBatch batch = far_batch();
  batch.outcomes = misses.near_outcomes;
  HPS_RETURN_IF_ERROR(table_.near_->Fetch(batch, kNoDeadline).status());
  for (size_t i = 0; i < misses.keys.size(); ++i) {
    if (misses.near_outcomes[i] != FetchOutcome::kMiss)
      misses.outcomes[i] = misses.near_outcomes[i];
  }
  return absl::OkStatus();
}

void LayeredFetch::Answer(FetchCounts& counts) {
  const Misses& misses = *misses_;
  const size_t row_bytes = table_.row_bytes_;
  size_t i = 0;  // of the unique keys
  for (const uint32_t position : misses.positions) {
    if (misses.keys[i] != batch_.keys[position]) ++i;
    const FetchOutcome outcome = misses.outcomes[i];
    if (outcome == FetchOutcome::kMiss) continue;
    --counts.misses;
    batch_.outcomes[position] = outcome;
    if (outcome == FetchOutcome::kAbsent) {
      ++counts.absent;
      continue;
    }
    ++counts.hits;
    std::memcpy(batch_.rows.row(position), &misses.rows[i * row_bytes], row_bytes);
    if (!batch_.versions.empty()) batch_.versions[position] = misses.versions[i];
  }
}

void LayeredFetch::CopyIntoNear(ApplyEpoch epoch) {
  Misses& misses = *misses_;
  const size_t row_bytes = table_.row_bytes_;
  size_t kept = 0;
  misses.absent.resize(misses.keys.size());
  for (size_t i = 0; i < misses.keys.size(); ++i) {
    if (misses.outcomes[i] == FetchOutcome::kMiss) continue;
    const bool is_absent = misses.outcomes[i] == FetchOutcome::kAbsent;
    misses.keys[kept] = misses.keys[i];
    misses.versions[kept] = is_absent ? 0 : misses.versions[i];
    misses.absent[kept] = is_absent ? 1 : 0;
    if (kept != i)
      std::memcpy(&misses.rows[kept * row_bytes], &misses.rows[i * row_bytes], row_bytes);
    ++kept;
  }
  if (kept == 0) return;
  // What is not copied is found in the far part again.
  table_.near_
      ->Insert({.keys = std::span(misses.keys).first(kept),
                .rows = {.data = misses.rows.data(),
                         .row_count = kept,
                         .row_bytes = row_bytes,
                         .stride_bytes = row_bytes},
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

}  // namespace hps
