#include "train_cpu/host_step.h"

#include <algorithm>
#include <numeric>

#include "train_cpu/key_index.h"

namespace hps {

void ListGradients(std::span<const GradientPiece> pieces, const float* zeros,
                   std::vector<const float*>& gradients) {
  gradients.clear();
  for (const GradientPiece& piece : pieces) {
    for (size_t i = 0; i < piece.row_count; ++i)
      gradients.push_back(piece.rows == nullptr ? zeros : piece.rows + i * piece.stride);
  }
}

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

void HostStep::AddGradients(const BagBatch& feature, size_t first_occurrence) {
  const bool is_bagged = feature.pooling != Pooling::kNone && !feature.offsets.empty();
  const bool is_mean = feature.pooling == Pooling::kMean && is_bagged;
  size_t end = 0;  // of the bag, among the feature's keys
  for (size_t output = 0; output < feature.output_rows(); ++output) {
    const size_t begin = end;
    end = is_bagged ? static_cast<size_t>(feature.offsets[output + 1] - feature.offsets[0])
                    : output + 1;
    const float share = is_mean && end > begin ? 1.0F / static_cast<float>(end - begin) : 1.0F;
    for (size_t i = begin; i < end; ++i) {
      AddGradient(first_occurrence + i, output_rows_ + output,
                  feature.weights.empty() ? share : feature.weights[i]);
    }
  }
  output_rows_ += feature.output_rows();
}

void HostStep::Finish(std::span<const BagBatch> features) {
  is_ready_ = true;
  const bool is_bagged = std::any_of(features.begin(), features.end(), [](const BagBatch& feature) {
    return !feature.weights.empty() ||
           (feature.pooling != Pooling::kNone && !feature.offsets.empty());
  });
  if (!is_bagged && keys_.size() == places_.size()) {  // every key occurs once, as an output
    output_rows_ = keys_.size();
    begins_.resize(keys_.size() + 1);
    gradient_rows_.resize(keys_.size());
    std::iota(begins_.begin(), begins_.end(), 0);
    std::iota(gradient_rows_.begin(), gradient_rows_.end(), 0);
    return;
  }
  begins_.assign(keys_.size() + 2, 0);
  for (const uint32_t place : places_) {
    if (place != kNoRow) ++begins_[place + 2];
  }
  for (size_t i = 2; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  gradient_rows_.resize(places_.size());
  const bool is_scaled = std::any_of(features.begin(), features.end(), [](const BagBatch& feature) {
    return !feature.weights.empty() ||
           (feature.pooling == Pooling::kMean && !feature.offsets.empty());
  });
  if (is_scaled) gradient_scales_.resize(places_.size());
  size_t occurrence = 0;
  for (const BagBatch& feature : features) {
    AddGradients(feature, occurrence);
    occurrence += feature.keys.size();
  }
}

}  // namespace hps
