#include "train_cpu/home_bags.h"

#include "train_cpu/row_kernels.h"

namespace hps {

void HomeBags::Begin(const BagBatch& batch, bool is_training) {
  batch_ = batch;
  unique_.Find(batch.keys);
  step_.Clear();
  if (!is_training) return;
  for (const Key key : unique_.keys()) step_.AddKey(key, /*slot=*/0);
  for (const uint32_t place : unique_.places()) step_.AddOccurrence(place);
  step_.Finish(batch);
}

void HomeBags::Pool(std::span<const float* const> rows, size_t dim, float* out) {
  const std::span<const uint32_t> places = unique_.places();
  pointers_.resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) pointers_[i] = rows[places[i]];
  const bool is_bagged = batch_.pooling != Pooling::kNone && !batch_.offsets.empty();
  RowKernelsForMachine().pool({.rows = pointers_.data(),
                               .offsets = is_bagged ? batch_.offsets.data() : nullptr,
                               .weights = batch_.weights.empty() ? nullptr : batch_.weights.data(),
                               .is_mean = batch_.pooling == Pooling::kMean,
                               .bag_count = batch_.output_rows(),
                               .dim = dim,
                               .out = out});
}

void HomeBags::SumGradients(const float* gradients, size_t dim, std::span<float* const> out) {
  pointers_.resize(step_.output_rows());
  for (size_t i = 0; i < pointers_.size(); ++i) pointers_[i] = gradients + i * dim;
  RowKernelsForMachine().sum({.sums = step_.sums(pointers_.data(), dim), .out = out.data()});
}

}  // namespace hps
