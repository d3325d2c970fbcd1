#include "train_cpu/host_shard.h"

#include <algorithm>
#include <array>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "train/row_rounding.h"

namespace hps {
namespace {

// Keys whose index entries are under way while the block before is looked up.
constexpr size_t kBlock = 32;
// Different keys of a step between the prefetch of a row's header and its use.
constexpr size_t kHeadersAhead = 16;
// Keys that wait for admission; beyond, those that came once are forgotten.
constexpr size_t kPendingMax = size_t{1} << 24;
// The share of a bounded table that is erased at a time, so that looking for the oldest rows is
// rare.
constexpr uint64_t kErasedShare = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddingShard>> HostShard::Create(const ShardOptions& options) {
  HPS_RETURN_IF_ERROR(ValidateShardOptions(options));
  return std::unique_ptr<EmbeddingShard>(new HostShard(options));
}

HostShard::HostShard(const ShardOptions& options)
    : options_(options),
      kernels_(RowKernelsForMachine()),
      corrections_(options.optimizer),
      rows_(options.dim + options.optimizer.state_count(options.dim)),
      sum_(options.dim),
      zeros_(options.dim) {}

absl::Status HostShard::CheckOutput(std::span<const BagBatch> features,
                                    std::span<const OutputPiece> out) const {
  size_t at = 0;
  for (const BagBatch& feature : features) {
    size_t row_count = 0;
    while (row_count < feature.output_rows() && at < out.size()) row_count += out[at++].row_count;
    if (row_count == feature.output_rows()) continue;
    return absl::InvalidArgumentError(absl::StrCat("embedding table ", options_.name, ": room for ",
                                                   row_count, " output rows of a feature, not ",
                                                   feature.output_rows()));
  }
  return absl::OkStatus();
}

absl::Status HostShard::CheckRoom(size_t row_count) const {
  // A step counts two changes.
  if (change_ < kNumberMax - 2 && row_count < RowArena::kSlotsMax - index_.size())
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "embedding table ", options_.name, ": more than 2^32 rows, or 2^31 training steps"));
}

absl::Status HostShard::Forward(std::span<const BagBatch> features, StepIndex* step,
                                std::span<const OutputPiece> out) {
  size_t key_count = 0;
  for (const BagBatch& feature : features) {
    HPS_RETURN_IF_ERROR(ValidateBatch(feature, options_.name));
    key_count += feature.keys.size();
  }
  HPS_RETURN_IF_ERROR(CheckOutput(features, out));
  try {
    auto* const host_step = static_cast<HostStep*>(step);
    if (host_step != nullptr) {
      HPS_RETURN_IF_ERROR(CheckRoom(key_count));
      host_step->Clear();
      BeginStep();
    }
    slots_.resize(key_count);
    row_values_.resize(key_count);
    size_t first = 0;
    for (const BagBatch& feature : features) {
      FindSlots(feature.keys, slots_.data() + first);
      first += feature.keys.size();
    }
    first = 0;
    for (const BagBatch& feature : features) {
      if (host_step != nullptr)
        TakeRows(feature.keys, first, *host_step);
      else
        LookUpRows(feature.keys, first);
      first += feature.keys.size();
    }
    if (host_step != nullptr) host_step->Finish(features);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding table: no memory for new rows");
  }
  PoolRows(features, out);
  return absl::OkStatus();
}

void HostShard::PoolRows(std::span<const BagBatch> features,
                         std::span<const OutputPiece> out) const {
  const OutputPiece* piece = out.data();
  const float* const* rows = row_values_.data();
  for (const BagBatch& feature : features) {
    const bool is_bagged = feature.pooling != Pooling::kNone && !feature.offsets.empty();
    size_t first = 0;  // output row of the piece; without bags also its first key
    while (first < feature.output_rows()) {
      const size_t key = is_bagged ? 0 : first;
      if (piece->rows != nullptr) {
        kernels_.pool({.rows = rows + key,
                       .offsets = is_bagged ? feature.offsets.data() + first : nullptr,
                       .offset_base = is_bagged ? feature.offsets[0] : 0,
                       .weights = feature.weights.empty() ? nullptr : feature.weights.data() + key,
                       .is_mean = feature.pooling == Pooling::kMean,
                       .bag_count = piece->row_count,
                       .dim = options_.dim,
                       .out = piece->rows,
                       .out_stride = piece->stride});
      }
      first += piece->row_count;
      ++piece;
    }
    rows += feature.keys.size();
  }
}

void HostShard::BeginStep() {
  ++step_;
  ++change_;
  if (options_.expire_after != 0) EraseExpired(rows_.slot_end() / options_.expire_after + 1);
  if (options_.rows_max != 0 && index_.size() > options_.rows_max) EraseBeyondBound();
  if (pending_.size() > kPendingMax) ForgetPending();
}

void HostShard::FindSlots(std::span<const Key> keys, uint32_t* slots) {
  std::array<std::array<uint64_t, kBlock>, 2> hashes;
  auto ask = [&](size_t begin) {
    auto& block = hashes[begin / kBlock % 2];
    for (size_t i = begin; i < std::min(keys.size(), begin + kBlock); ++i) {
      block[i - begin] = KeyIndex::Hash(keys[i]);
      index_.Prefetch(block[i - begin]);
    }
  };
  ask(0);
  for (size_t begin = 0; begin < keys.size(); begin += kBlock) {
    ask(begin + kBlock);
    const auto& block = hashes[begin / kBlock % 2];
    for (size_t i = begin; i < std::min(keys.size(), begin + kBlock); ++i) {
      slots[i] = index_.Find(keys[i], block[i - begin]);
      if (slots[i] != kNoRow) __builtin_prefetch(rows_.at(slots[i]), 1);
    }
  }
}

void HostShard::TakeRows(std::span<const Key> keys, size_t first, HostStep& step) {
  for (size_t i = 0; i < keys.size(); ++i) {
    uint32_t slot = slots_[first + i];
    if (slot == kNoRow || IsStale(*rows_.at(slot), keys[i])) [[unlikely]]
      slot = AdmitRow(keys[i]);
    if (slot == kNoRow) {
      row_values_[first + i] = zeros_.data();
      step.AddOccurrence(kNoRow);
      continue;
    }
    RowHeader* const row = rows_.at(slot);
    if (row->last_seen != step_) {
      row->last_seen = step_;
      row->place = step.AddKey(keys[i], slot);
    }
    row_values_[first + i] = ValuesOf(row);
    step.AddOccurrence(row->place);
  }
}

void HostShard::LookUpRows(std::span<const Key> keys, size_t first) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t slot = slots_[first + i];
    const bool has_row = slot != kNoRow && !IsExpired(*rows_.at(slot));
    row_values_[first + i] = has_row ? ValuesOf(rows_.at(slot)) : zeros_.data();
  }
}

uint32_t HostShard::AdmitRow(Key key) {
  // An earlier key of this batch may have changed the index.
  const uint32_t slot = index_.Find(key, KeyIndex::Hash(key));
  if (slot != kNoRow) {
    if (!IsExpired(*rows_.at(slot))) return slot;
    EraseRow(slot);
  }
  if (options_.admit_after > 1) {
    Pending& pending = pending_[key];
    if (pending.last_step != step_) ++pending.count;
    pending.last_step = step_;
    if (pending.count < options_.admit_after) return kNoRow;
    pending_.erase(key);
  }
  return InsertRow(key);
}

uint32_t HostShard::InsertRow(Key key) {
  index_.Reserve();
  const uint32_t slot = rows_.Take();
  index_.Insert(key, KeyIndex::Hash(key), slot);
  RowHeader* const row = rows_.at(slot);
  row->is_live = true;
  row->key = key;
  row->changed = change_;
  float* const values = ValuesOf(row);
  InitializeRow(options_.initializer, key, {values, options_.dim});
  RoundToNearest(options_.dtype, {values, options_.dim});
  InitializeState(options_.optimizer, options_.dim,
                  {values + options_.dim, width() - options_.dim});
  return slot;
}

void HostShard::EraseRow(uint32_t slot) {
  const RowHeader& row = *rows_.at(slot);
  marks_.AddErased(row.key, row.is_published, row.is_saved, change_);
  index_.Erase(row.key, KeyIndex::Hash(row.key));
  rows_.Free(slot);
  ++totals_.erased;
}

void HostShard::EraseExpired(size_t slot_count) {
  for (size_t i = 0; i < std::min<size_t>(slot_count, rows_.slot_end()); ++i) {
    if (sweep_ >= rows_.slot_end()) sweep_ = 0;
    const RowHeader& row = *rows_.at(sweep_);
    if (row.is_live && IsExpired(row)) EraseRow(sweep_);
    ++sweep_;
  }
}

void HostShard::EraseAllExpired() {
  if (options_.expire_after != 0) EraseExpired(rows_.slot_end());
}

// Expired rows go first, all of them: how many of them are left otherwise depends on how far the
// sweep has come, and a table that was loaded from a checkpoint has none.
void HostShard::EraseBeyondBound() {
  EraseAllExpired();
  if (index_.size() > options_.rows_max) EraseOldest();
}

void HostShard::EraseOldest() {
  struct Age {
    uint32_t last_seen = 0;
    Key key = 0;
    uint32_t slot = 0;
    bool operator<(const Age& other) const {
      return last_seen != other.last_seen ? last_seen < other.last_seen : key < other.key;
    }
  };
  std::vector<Age> ages;
  ages.reserve(index_.size());
  for (uint32_t slot = 0; slot < rows_.slot_end(); ++slot) {
    const RowHeader& row = *rows_.at(slot);
    if (row.is_live) ages.push_back({row.last_seen, row.key, slot});
  }
  const uint64_t kept = options_.rows_max - options_.rows_max / kErasedShare;
  const auto end = ages.begin() + static_cast<ptrdiff_t>(ages.size() - kept);
  std::nth_element(ages.begin(), end, ages.end());
  for (auto age = ages.begin(); age != end; ++age) EraseRow(age->slot);
}

void HostShard::ForgetPending() {
  absl::erase_if(pending_, [](const auto& entry) { return entry.second.count <= 1; });
  if (pending_.size() > kPendingMax) pending_.clear();
}

void HostShard::FindLiveRows(const HostStep& step, uint32_t change) {
  live_rows_.resize(step.key_count());
  for (size_t i = 0; i < step.key_count(); ++i) {
    if (i + kHeadersAhead < step.key_count())
      __builtin_prefetch(rows_.at(step.slot(i + kHeadersAhead)), 1);
    RowHeader* const row = rows_.at(step.slot(i));
    const bool is_same = row->is_live && row->key == step.key(i);
    if (is_same) row->changed = change;
    live_rows_[i] = is_same ? row : nullptr;
  }
}

absl::Status HostShard::Backward(StepIndex& step, std::span<const GradientPiece> gradients,
                                 const UpdateFactors& factors) {
  const auto& host_step = static_cast<const HostStep&>(step);
  if (!host_step.is_ready()) {
    return absl::InvalidArgumentError(
        absl::StrCat("embedding table ", options_.name, ": the step had no forward call"));
  }
  size_t row_count = 0;
  for (const GradientPiece& piece : gradients) row_count += piece.row_count;
  if (row_count != host_step.output_rows()) {
    return absl::InvalidArgumentError(absl::StrCat("embedding table ", options_.name,
                                                   ": gradients of ", row_count, " rows, not ",
                                                   host_step.output_rows()));
  }
  try {
    ListGradients(gradients, zeros_.data(), gradients_);
    FindLiveRows(host_step, ++change_);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding table: no memory for a step");
  }
  ++totals_.updates;
  kernels_.update({.rows = live_rows_.data(),
                   .sums = host_step.sums(gradients_.data(), options_.dim),
                   .scale = factors.scale,
                   .learning_rate = factors.learning_rate,
                   .table_updates = totals_.updates,
                   .optimizer = &options_.optimizer,
                   .corrections = &corrections_,
                   .sum = sum_.data()});
  if (options_.dtype != Dtype::kFloat32) RoundLiveRows();
  return absl::OkStatus();
}

void HostShard::RoundLiveRows() {
  for (RowHeader* const row : live_rows_) {
    if (row == nullptr) continue;
    RoundAtRandom(options_.dtype, RoundingState(row->key, options_.initializer.seed), row->updates,
                  {ValuesOf(row), options_.dim});
  }
}

ShardStatistics HostShard::Statistics() const {
  return {.rows = index_.size(),
          .bytes = index_.bytes() + rows_.bytes() +
                   // A byte of control for each slot.
                   pending_.capacity() * (sizeof(decltype(pending_)::value_type) + 1) +
                   marks_.bytes(),
          .pending = pending_.size(),
          .erased = totals_.erased,
          .step = step_};
}

}  // namespace hps
