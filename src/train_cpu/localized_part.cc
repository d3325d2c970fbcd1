#include "train_cpu/localized_part.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "train_cpu/row_kernels.h"

namespace hps {
namespace {

constexpr size_t kHeader = 3;

// Integers that hold so many weights.
size_t PackedWeights(size_t count) { return (count + 1) / 2; }

// Adds a rank's offsets to those of the ranks before it, which have `first_key` keys. Where a rank
// gave no offsets, each of its keys is a bag.
void AddOffsets(std::span<const int64_t> added, size_t first_key, size_t key_count,
                std::vector<int64_t>& offsets) {
  if (added.empty() && offsets.empty()) return;
  if (offsets.empty()) {
    for (size_t i = 0; i <= first_key; ++i) offsets.push_back(static_cast<int64_t>(i));
  }
  if (added.empty()) {
    for (size_t i = first_key; i < key_count; ++i) offsets.push_back(static_cast<int64_t>(i + 1));
    return;
  }
  for (const int64_t offset : added.subspan(1))
    offsets.push_back(offset + static_cast<int64_t>(first_key));
}

void CopyRows(const GradientPiece& from, size_t dim, float* to) {
  for (size_t i = 0; i < from.row_count; ++i, to += dim) {
    if (from.rows != nullptr)
      std::copy_n(from.rows + i * from.stride, dim, to);
    else
      std::fill_n(to, dim, 0.0F);
  }
}

}  // namespace

LocalizedPart::LocalizedPart(const RankTable& table, const RankPlace& place)
    : table_(table),
      place_(place),
      dim_(table.shard->options().dim),
      step_(table.shard->NewStep()) {}

void LocalizedPart::Begin(std::span<const BagBatch> features, bool is_training) {
  is_training_ = is_training;
  features_.assign(features.begin(), features.end());
  for (BagBatch& feature : features_) {
    if (feature.pooling == Pooling::kNone) feature.offsets = {};
  }
  received_.resize(features.size());
  for (Received& received : received_) {
    received.rows.clear();
    received.keys.clear();
    received.offsets.clear();
    received.weights.clear();
  }
}

size_t LocalizedPart::OutputRows() const {
  size_t rows = 0;
  for (const BagBatch& feature : features_) rows += feature.output_rows();
  return rows;
}

PieceSizes LocalizedPart::Sizes(uint32_t rank) const {
  PieceSizes sizes;
  if (rank == *table_.holder) {
    for (const BagBatch& feature : features_) {
      sizes.message += kHeader + feature.keys.size() + feature.offsets.size() +
                       PackedWeights(feature.weights.size());
    }
    // The holder's own rows and gradients stay where they are.
    sizes.rows_from = sizes.gradients_to = is_holder() ? 0 : OutputRows() * dim_;
  }
  if (!is_holder() || rank == place_.rank) return sizes;
  for (const Received& received : received_) {
    if (rank < received.rows.size()) sizes.rows_to += received.rows[rank] * dim_;
  }
  sizes.gradients_from = sizes.rows_to;
  return sizes;
}

void LocalizedPart::WriteMessage(uint32_t rank, int64_t*& to) const {
  if (rank != *table_.holder) return;
  for (const BagBatch& feature : features_) {
    *to++ = static_cast<int64_t>(feature.keys.size());
    *to++ = static_cast<int64_t>(feature.offsets.size());
    *to++ = static_cast<int64_t>(feature.weights.size());
    to = std::copy(feature.keys.begin(), feature.keys.end(), to);
    for (const int64_t offset : feature.offsets) *to++ = offset - feature.offsets[0];
    if (feature.weights.empty()) continue;
    const size_t packed = PackedWeights(feature.weights.size());
    to[packed - 1] = 0;
    std::memcpy(to, feature.weights.data(), feature.weights.size_bytes());
    to += packed;
  }
}

absl::Status LocalizedPart::ReadMessage(uint32_t rank, std::span<const int64_t>& message) {
  if (!is_holder()) return absl::OkStatus();
  for (Received& received : received_) HPS_RETURN_IF_ERROR(ReadFeature(rank, message, received));
  return absl::OkStatus();
}

absl::Status LocalizedPart::ReadFeature(uint32_t rank, std::span<const int64_t>& message,
                                        Received& received) {
  HPS_CHECK(rank == received.rows.size());
  size_t sizes[kHeader] = {};
  size_t left = message.size() < kHeader ? 0 : message.size() - kHeader;
  bool is_whole = message.size() >= kHeader;
  for (size_t i = 0; is_whole && i < kHeader; ++i) {
    sizes[i] = static_cast<size_t>(message[i]);
    const size_t integers = i == 2 ? PackedWeights(sizes[i]) : sizes[i];
    is_whole = integers <= left;
    left -= integers;
  }
  if (!is_whole) {
    return absl::InternalError(absl::StrCat("embedding table ", table_.shard->options().name,
                                            ": the message of rank ", rank, " is cut off"));
  }
  const auto [key_count, offset_count, weight_count] = sizes;
  const size_t first_key = received.keys.size();
  const auto keys = message.subspan(kHeader, key_count);
  received.keys.insert(received.keys.end(), keys.begin(), keys.end());
  if (weight_count != 0) {
    received.weights.resize(first_key, 1);
    received.weights.resize(first_key + weight_count);
    std::memcpy(received.weights.data() + first_key,
                message.data() + kHeader + key_count + offset_count, weight_count * sizeof(float));
  }
  AddOffsets(message.subspan(kHeader + key_count, offset_count), first_key, received.keys.size(),
             received.offsets);
  received.rows.push_back(offset_count == 0 ? key_count : offset_count - 1);
  message = message.last(left);
  return absl::OkStatus();
}

absl::Status LocalizedPart::LookUp(std::span<float*> to, std::span<const OutputPiece> out) {
  if (!is_holder()) return absl::OkStatus();
  StepIndex* const step = is_training_ ? step_.get() : nullptr;
  if (is_alone()) return table_.shard->Forward(features_, step, out);
  std::vector<BagBatch> batches;
  std::vector<OutputPiece> pieces;
  for (size_t i = 0; i < features_.size(); ++i) {
    Received& received = received_[i];
    if (!received.weights.empty()) received.weights.resize(received.keys.size(), 1);
    batches.push_back({.keys = received.keys,
                       .offsets = received.offsets,
                       .weights = received.weights,
                       .pooling = features_[i].pooling});
    for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
      if (rank == place_.rank) {
        pieces.push_back(out[i]);
        continue;
      }
      pieces.push_back({received.rows[rank], to[rank], dim_});
      to[rank] += received.rows[rank] * dim_;
    }
  }
  return table_.shard->Forward(batches, step, pieces);
}

// The output's rows may lie far apart: the kernel prefetches them, which a plain copy does not.
void LocalizedPart::Pool(std::span<const float*> from, std::span<const OutputPiece> out) {
  if (is_holder()) return;
  const float*& rows = from[*table_.holder];
  for (const OutputPiece& piece : out) {
    rows_.clear();
    for (size_t i = 0; i < piece.row_count; ++i, rows += dim_) rows_.push_back(rows);
    RowKernelsForMachine().pool({.rows = rows_.data(),
                                 .bag_count = piece.row_count,
                                 .dim = dim_,
                                 .out = piece.rows,
                                 .out_stride = piece.stride});
  }
}

void LocalizedPart::SumGradients(std::span<const GradientPiece> gradients, std::span<float*> to) {
  gradients_.assign(gradients.begin(), gradients.end());
  if (is_holder()) return;
  float*& rows = to[*table_.holder];
  for (const GradientPiece& piece : gradients) {
    CopyRows(piece, dim_, rows);
    rows += piece.row_count * dim_;
  }
}

std::vector<GradientPiece> LocalizedPart::ReceiveGradients(std::span<const float*> from) {
  if (!is_holder() || is_alone()) return gradients_;
  std::vector<GradientPiece> pieces;
  for (size_t i = 0; i < features_.size(); ++i) {
    for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
      if (rank == place_.rank) {
        pieces.push_back(gradients_[i]);
        continue;
      }
      const size_t rows = received_[i].rows[rank];
      pieces.push_back({rows, from[rank], dim_});
      from[rank] += rows * dim_;
    }
  }
  return pieces;
}

}  // namespace hps
