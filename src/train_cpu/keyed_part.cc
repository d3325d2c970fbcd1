#include "train_cpu/keyed_part.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

KeyedPart::KeyedPart(const RankTable& table, const RankPlace& place)
    : table_(table),
      place_(place),
      dim_(table.shard->options().dim),
      step_(table.shard->NewStep()) {}

void KeyedPart::Begin(std::span<const BagBatch> features, bool is_training) {
  is_training_ = is_training;
  received_.clear();
  received_keys_.clear();
  bags_.Begin(features, is_training);
  const std::span<const Key> keys = bags_.keys();
  groups_.resize(keys.size());
  begins_.assign(place_.rank_count + 3, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_hot =
        table_.is_replicated || (!table_.hot.empty() && table_.hot.contains(keys[i]));
    groups_[i] = is_hot ? 0 : OwnerOfKey(keys[i], place_.rank_count) + 1;
    ++begins_[groups_[i] + 2];
  }
  for (size_t i = 2; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  order_.resize(keys.size());
  // begins_[group + 1] counts up from the group's begin to its end.
  for (size_t i = 0; i < keys.size(); ++i)
    order_[begins_[groups_[i] + 1]++] = static_cast<uint32_t>(i);
}

PieceSizes KeyedPart::Sizes(uint32_t rank) const {
  PieceSizes sizes;
  const size_t hot = HotPlaces().size();
  const size_t cold = ColdPlaces(rank).size();
  sizes.message = 2 + hot + cold;
  sizes.rows_from = cold * dim_;
  sizes.gradients_to = (hot + cold) * dim_;
  if (rank < received_.size()) {
    sizes.rows_to = received_[rank].cold * dim_;
    sizes.gradients_from = (received_[rank].hot + received_[rank].cold) * dim_;
  }
  return sizes;
}

void KeyedPart::WriteMessage(uint32_t rank, int64_t*& to) const {
  const std::span<const Key> keys = bags_.keys();
  *to++ = static_cast<int64_t>(HotPlaces().size());
  *to++ = static_cast<int64_t>(ColdPlaces(rank).size());
  for (const uint32_t at : HotPlaces()) *to++ = keys[at];
  for (const uint32_t at : ColdPlaces(rank)) *to++ = keys[at];
}

absl::Status KeyedPart::ReadMessage(uint32_t rank, std::span<const int64_t>& message) {
  HPS_CHECK(rank == received_.size());
  const auto hot = message.size() < 2 ? 0 : static_cast<size_t>(message[0]);
  const auto cold = message.size() < 2 ? 0 : static_cast<size_t>(message[1]);
  if (message.size() < 2 || hot > message.size() - 2 || cold > message.size() - 2 - hot) {
    return absl::InternalError(absl::StrCat("embedding table ", table_.shard->options().name,
                                            ": the message of rank ", rank, " is cut off"));
  }
  received_.push_back({hot, cold});
  const std::span<const int64_t> keys = message.subspan(2, hot + cold);
  received_keys_.insert(received_keys_.end(), keys.begin(), keys.end());
  message = message.subspan(2 + hot + cold);
  return absl::OkStatus();
}

absl::Status KeyedPart::LookUp(std::span<float*> to, std::span<const OutputPiece> /*out*/) {
  hot_rows_.resize(HotPlaces().size() * dim_);
  output_pieces_.clear();
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    const Received& received = received_[rank];
    output_pieces_.push_back(
        {received.hot, rank == place_.rank ? hot_rows_.data() : nullptr, dim_});
    output_pieces_.push_back({received.cold, to[rank], dim_});
    to[rank] += received.cold * dim_;
  }
  const BagBatch each{.keys = received_keys_, .pooling = Pooling::kNone};
  return table_.shard->Forward({&each, 1}, is_training_ ? step_.get() : nullptr, output_pieces_);
}

void KeyedPart::Pool(std::span<const float*> from, std::span<const OutputPiece> out) {
  rows_.resize(bags_.keys().size());
  const float* hot_row = hot_rows_.data();
  for (const uint32_t at : HotPlaces()) {
    rows_[at] = hot_row;
    hot_row += dim_;
  }
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    for (const uint32_t at : ColdPlaces(rank)) {
      rows_[at] = from[rank];
      from[rank] += dim_;
    }
  }
  bags_.Pool(rows_, dim_, out);
}

void KeyedPart::SumGradients(std::span<const GradientPiece> gradients, std::span<float*> to) {
  const size_t hot = HotPlaces().size() * dim_;
  sums_.resize(bags_.keys().size());
  float* const hot_sums = to[place_.rank];
  float* hot_sum = hot_sums;
  for (const uint32_t at : HotPlaces()) {
    sums_[at] = hot_sum;
    hot_sum += dim_;
  }
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    float* sum = to[rank] + hot;
    for (const uint32_t at : ColdPlaces(rank)) {
      sums_[at] = sum;
      sum += dim_;
    }
  }
  bags_.SumGradients(gradients, dim_, sums_);
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    if (rank != place_.rank) std::copy_n(hot_sums, hot, to[rank]);
    to[rank] += hot + ColdPlaces(rank).size() * dim_;
  }
}

std::vector<GradientPiece> KeyedPart::ReceiveGradients(std::span<const float*> from) {
  std::vector<GradientPiece> pieces;
  for (uint32_t rank = 0; rank < place_.rank_count; ++rank) {
    const size_t count = received_[rank].hot + received_[rank].cold;
    pieces.push_back({count, from[rank], dim_});
    from[rank] += count * dim_;
  }
  return pieces;
}

}  // namespace hps
