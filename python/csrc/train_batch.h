// The arguments of a step, for train_steps.cc and train_device.cc.
//
// Arrays come as addresses, because a step has some hundred of them and an address costs a tenth of
// what an array object does; hps.train checks their types and keeps them alive. A `Step` here is
// RankStep or BoundStep: it has features(), and the dim(i) of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hps/types.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "train/embedding_shard.h"
#include "train/set_batch.h"

namespace hps::python {

// Features: (name, number on all ranks, table, pooling).
using Feature = std::tuple<std::string, int64_t, size_t, int>;

inline std::vector<SetFeature> FeaturesOf(const std::vector<Feature>& features) {
  std::vector<SetFeature> read;
  read.reserve(features.size());
  for (const auto& [name, id, table, pooling] : features) {
    read.push_back(
        {.name = name, .id = id, .table = table, .pooling = static_cast<Pooling>(pooling)});
  }
  return read;
}

// The keys of a call: ((address, count) of keys, offsets, weights; bags of each feature, or one
// number for all of them; which features have weights, none: all).
using Array = std::pair<uintptr_t, size_t>;
using Batch = std::tuple<Array, Array, Array, std::vector<int64_t>, std::vector<uint8_t>>;

template <typename T>
std::span<const T> SpanOf(const Array& array) {
  return {reinterpret_cast<const T*>(array.first), array.second};
}

// Borrows the batch, in which it writes out the number of bags.
template <typename Step>
SetBatch BatchOf(Batch& batch, const Step& step) {
  auto& [keys, offsets, weights, bag_counts, is_weighted] = batch;
  if (bag_counts.size() == 1) bag_counts.resize(step.features().size(), bag_counts[0]);
  return {.keys = SpanOf<Key>(keys),
          .offsets = SpanOf<int64_t>(offsets),
          .weights = SpanOf<float>(weights),
          .bag_counts = bag_counts,
          .is_weighted = is_weighted};
}

// Of each feature: (address, elements from one row to the next). One place: the rows of the other
// features are beside those of the first.
using Places = std::vector<std::pair<uintptr_t, size_t>>;

// `At`: the outputs or gradients of a feature, {pointer to `Value`, values from one row to the
// next}.
template <typename At, typename Value, typename Step>
std::vector<At> RowsAt(const Places& places, const Step& step, size_t element_bytes) {
  std::vector<At> found;
  found.reserve(step.features().size());
  uintptr_t address = 0;
  size_t stride = 0;
  for (size_t i = 0; i < step.features().size(); ++i) {
    if (i < places.size())
      std::tie(address, stride) = places[i];
    else if (address != 0)
      address += step.dim(i - 1) * element_bytes;
    found.push_back({reinterpret_cast<Value*>(address), stride * element_bytes / sizeof(Value)});
  }
  return found;
}

inline std::vector<UpdateFactors> FactorsOf(const std::vector<float>& learning_rates, float scale) {
  std::vector<UpdateFactors> factors;
  factors.reserve(learning_rates.size());
  for (const float rate : learning_rates)
    factors.push_back({.learning_rate = rate, .scale = scale});
  return factors;
}

}  // namespace hps::python
