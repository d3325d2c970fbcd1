#include "train_cpu/host_step.h"

#include "train/gradient_bound.h"
#include "train_cpu/key_index.h"

namespace hps {

void HostStep::Clear() {
  keys_.clear();
  slots_.clear();
  places_.clear();
  begins_.clear();
  gradient_rows_.clear();
  gradient_scales_.clear();
  output_rows_ = 0;
  is_ready_ = false;
}

uint32_t HostStep::AddKey(Key key, uint32_t slot) {
  keys_.push_back(key);
  slots_.push_back(slot);
  return static_cast<uint32_t>(keys_.size() - 1);
}

void HostStep::AddOccurrence(uint32_t place) { places_.push_back(place); }

void HostStep::AddGradient(size_t occurrence, size_t output, float scale) {
  const uint32_t place = places_[occurrence];
  if (place == kNoRow) return;
  // begins_[place + 1] counts up from the key's begin to its end.
  const uint32_t at = begins_[place + 1]++;
  gradient_rows_[at] = static_cast<uint32_t>(output);
  if (!gradient_scales_.empty()) gradient_scales_[at] = scale;
}

void HostStep::Finish(const BagBatch& batch) {
  begins_.assign(keys_.size() + 2, 0);
  for (const uint32_t place : places_) {
    if (place != kNoRow) ++begins_[place + 2];
  }
  for (size_t i = 2; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  gradient_rows_.resize(places_.size());
  const bool is_bagged = batch.pooling != Pooling::kNone && !batch.offsets.empty();
  const bool is_mean = batch.pooling == Pooling::kMean && is_bagged;
  if (is_mean || !batch.weights.empty()) gradient_scales_.resize(places_.size());
  output_rows_ = batch.output_rows();
  gradient_factor_ = GradientFactor(batch);
  for (size_t output = 0; output < output_rows_; ++output) {
    const size_t begin = is_bagged ? static_cast<size_t>(batch.offsets[output]) : output;
    const size_t end = is_bagged ? static_cast<size_t>(batch.offsets[output + 1]) : output + 1;
    const float share = is_mean && end > begin ? 1.0F / static_cast<float>(end - begin) : 1.0F;
    for (size_t i = begin; i < end; ++i)
      AddGradient(i, output, batch.weights.empty() ? share : batch.weights[i]);
  }
  is_ready_ = true;
}

}  // namespace hps
