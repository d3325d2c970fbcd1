#include "train_cpu/localized_part.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr size_t kHeader = 3;

// Integers that hold so many weights.
size_t PackedWeights(size_t count) { return (count + 1) / 2; }

}  // namespace

LocalizedPart::LocalizedPart(const RankTable& table, const RankPlace& place)
    : table_(table),
      place_(place),
      dim_(table.shard->options().dim),
      step_(table.shard->NewStep()) {}

absl::Status LocalizedPart::Begin(const BagBatch& batch, bool is_training) {
  HPS_RETURN_IF_ERROR(ValidateBatch(batch, table_.shard->options().name));
  is_training_ = is_training;
  batch_ = batch;
  if (batch.pooling == Pooling::kNone) batch_.offsets = {};
  output_rows_ = batch.output_rows();
  received_rows_.clear();
  keys_.clear();
  weights_.clear();
  offsets_.clear();
  return absl::OkStatus();
}

PieceSizes LocalizedPart::Sizes(uint32_t rank) const {
  PieceSizes sizes;
  if (rank == *table_.holder) {
    sizes.message =
        kHeader + batch_.keys.size() + batch_.offsets.size() + PackedWeights(batch_.weights.size());
    // The holder's own rows and gradients stay where they are.
    sizes.rows_from = sizes.gradients_to = is_holder() ? 0 : output_rows_ * dim_;
  }
  if (is_holder() && rank != place_.rank && rank < received_rows_.size())
    sizes.rows_to = sizes.gradients_from = received_rows_[rank] * dim_;
  return sizes;
}

void LocalizedPart::WriteMessage(uint32_t rank, int64_t*& to) const {
  if (rank != *table_.holder) return;
  *to++ = static_cast<int64_t>(batch_.keys.size());
  *to++ = static_cast<int64_t>(batch_.offsets.size());
  *to++ = static_cast<int64_t>(batch_.weights.size());
  to = std::copy(batch_.keys.begin(), batch_.keys.end(), to);
  to = std::copy(batch_.offsets.begin(), batch_.offsets.end(), to);
  if (batch_.weights.empty()) return;
  const size_t packed = PackedWeights(batch_.weights.size());
  to[packed - 1] = 0;
  std::memcpy(to, batch_.weights.data(), batch_.weights.size_bytes());
  to += packed;
}

absl::Status LocalizedPart::ReadMessage(uint32_t rank, std::span<const int64_t>& message) {
  if (!is_holder()) return absl::OkStatus();
  HPS_CHECK(rank == received_rows_.size());
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
  const size_t first_key = keys_.size();
  const auto keys = message.subspan(kHeader, key_count);
  keys_.insert(keys_.end(), keys.begin(), keys.end());
  if (weight_count != 0) {
    weights_.resize(first_key, 1);
    weights_.resize(first_key + weight_count);
    std::memcpy(weights_.data() + first_key, message.data() + kHeader + key_count + offset_count,
                weight_count * sizeof(float));
  }
  ReadOffsets(message.subspan(kHeader + key_count, offset_count), first_key);
  received_rows_.push_back(offset_count == 0 ? key_count : offset_count - 1);
  message = message.last(left);
  return absl::OkStatus();
}

void LocalizedPart::ReadOffsets(std::span<const int64_t> offsets, size_t first_key) {
  if (offsets.empty() && offsets_.empty()) return;
  // Where a rank gave no offsets, each of its keys is a bag.
  if (offsets_.empty()) {
    for (size_t i = 0; i <= first_key; ++i) offsets_.push_back(static_cast<int64_t>(i));
  }
  if (offsets.empty()) {
    for (size_t i = first_key; i < keys_.size(); ++i)
      offsets_.push_back(static_cast<int64_t>(i + 1));
    return;
  }
  for (const int64_t offset : offsets.subspan(1))
    offsets_.push_back(offset + static_cast<int64_t>(first_key));
}

absl::Status LocalizedPart::LookUp(std::span<float*> to, float* out) {
  if (!is_holder()) return absl::OkStatus();
  if (!weights_.empty()) weights_.resize(keys_.size(), 1);
  std::vector<OutputPiece> pieces;
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    const size_t rows = received_rows_[rank];
    pieces.push_back({rows, rank == place_.rank ? out : to[rank]});
    if (rank != place_.rank) to[rank] += rows * dim_;
  }
  const BagBatch batch{
      .keys = keys_, .offsets = offsets_, .weights = weights_, .pooling = batch_.pooling};
  return table_.shard->ForwardPieces(batch, is_training_ ? step_.get() : nullptr, pieces);
}

void LocalizedPart::Pool(std::span<const float*> from, float* out) {
  if (is_holder()) return;
  const float*& rows = from[*table_.holder];
  std::copy_n(rows, output_rows_ * dim_, out);
  rows += output_rows_ * dim_;
}

void LocalizedPart::SumGradients(const float* gradients, std::span<float*> to) {
  gradients_ = gradients;
  if (is_holder()) return;
  float*& rows = to[*table_.holder];
  if (gradients != nullptr)
    std::copy_n(gradients, output_rows_ * dim_, rows);
  else
    std::fill_n(rows, output_rows_ * dim_, 0.0F);
  rows += output_rows_ * dim_;
}

absl::Status LocalizedPart::Update(std::span<const float*> from, const UpdateFactors* factors) {
  if (!is_holder()) return absl::OkStatus();
  std::vector<float> zeros;
  if (gradients_ == nullptr) {
    zeros.resize(output_rows_ * dim_);
    gradients_ = zeros.data();
  }
  std::vector<GradientPiece> pieces;
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    const size_t rows = received_rows_[rank];
    pieces.push_back({rows, rank == place_.rank ? gradients_ : from[rank]});
    if (rank != place_.rank) from[rank] += rows * dim_;
  }
  if (factors == nullptr) return absl::OkStatus();
  return table_.shard->BackwardPieces(*step_, pieces, *factors);
}

}  // namespace hps
