#include "train_cpu/home_bags.h"

#include "train_cpu/row_kernels.h"

namespace hps {

void HomeBags::Begin(std::span<const BagBatch> features, bool is_training) {
  features_.assign(features.begin(), features.end());
  size_t key_count = 0;
  for (const BagBatch& feature : features) key_count += feature.keys.size();
  unique_.Begin(key_count);
  for (const BagBatch& feature : features) unique_.Add(feature.keys);
  step_.Clear();
  if (!is_training) return;
  for (const Key key : unique_.keys()) step_.AddKey(key, /*slot=*/0);
  for (const uint32_t place : unique_.places()) step_.AddOccurrence(place);
  step_.Finish(features);
}

void HomeBags::Pool(std::span<const float* const> rows, size_t dim,
                    std::span<const OutputPiece> out) {
  const std::span<const uint32_t> places = unique_.places();
  pointers_.resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) pointers_[i] = rows[places[i]];
  const float* const* first = pointers_.data();
  for (size_t i = 0; i < features_.size(); ++i) {
    const BagBatch& feature = features_[i];
    const bool is_bagged = feature.pooling != Pooling::kNone && !feature.offsets.empty();
    RowKernelsForMachine().pool(
        {.rows = first,
         .offsets = is_bagged ? feature.offsets.data() : nullptr,
         .offset_base = is_bagged ? feature.offsets[0] : 0,
         .weights = feature.weights.empty() ? nullptr : feature.weights.data(),
         .is_mean = feature.pooling == Pooling::kMean,
         .bag_count = feature.output_rows(),
         .dim = dim,
         .out = out[i].rows,
         .out_stride = out[i].stride});
    first += feature.keys.size();
  }
}

void HomeBags::SumGradients(std::span<const GradientPiece> gradients, size_t dim,
                            std::span<float* const> out) {
  zeros_.resize(dim);
  ListGradients(gradients, zeros_.data(), pointers_);
  RowKernelsForMachine().sum({.sums = step_.sums(pointers_.data(), dim), .out = out.data()});
}

}  // namespace hps
