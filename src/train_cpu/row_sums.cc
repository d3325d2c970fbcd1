#include "train_cpu/row_sums.h"

#include "train_cpu/row_kernels.h"

namespace hps {

void RowSums::Add(const StepIndex& step, std::span<const GradientPiece> gradients) {
  const auto& added = static_cast<const HostStep&>(step);
  ListGradients(gradients, zeros_.data(), gradients_);
  added_.resize(added.key_count() * dim_);
  added_rows_.resize(added.key_count());
  for (size_t i = 0; i < added_rows_.size(); ++i) added_rows_[i] = added_.data() + i * dim_;
  RowKernelsForMachine().sum(
      {.sums = added.sums(gradients_.data(), dim_), .out = added_rows_.data()});
  for (size_t i = 0; i < added.key_count(); ++i) {
    const float* const row = added_rows_[i];
    const auto [found, is_new] =
        places_.try_emplace(added.key(i), static_cast<uint32_t>(keys_.size()));
    if (is_new) {
      keys_.push_back(added.key(i));
      slots_.push_back(added.slot(i));
      sums_.insert(sums_.end(), row, row + dim_);
      continue;
    }
    slots_[found->second] = added.slot(i);
    float* const sum = sums_.data() + found->second * dim_;
    for (size_t j = 0; j < dim_; ++j) sum[j] += row[j];
  }
  has_gradients_ = true;
}

StepIndex& RowSums::Step() {
  step_.Clear();
  for (size_t i = 0; i < keys_.size(); ++i) step_.AddOccurrence(step_.AddKey(keys_[i], slots_[i]));
  const BagBatch each{.keys = keys_, .pooling = Pooling::kNone};
  step_.Finish({&each, 1});
  return step_;
}

void RowSums::Scale(float factor) {
  for (float& sum : sums_) sum *= factor;
}

void RowSums::Clear() {
  has_gradients_ = false;
  places_.clear();
  keys_.clear();
  slots_.clear();
  sums_.clear();
}

}  // namespace hps
