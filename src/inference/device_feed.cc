#include "inference/device_feed.h"

#include <algorithm>

namespace hps {
namespace {

// Whether the samples of all requests have as many rows each, which lie one after the other.
bool IsUniform(size_t index, std::span<const Prediction* const> group, uint32_t dim) {
  const PredictionInput& first = group.front()->inputs[index];
  const float* next = first.rows;
  for (const Prediction* request : group) {
    const PredictionInput& of = request->inputs[index];
    if (!of.offsets.empty() || of.sample_keys != first.sample_keys) return false;
    const uint64_t rows = request->batch * of.sample_keys;
    if (rows == 0) continue;
    if (of.rows != next) return false;
    next += rows * dim;
  }
  return true;
}

BagPlace PlaceOf(const PredictionInput& of, uint64_t first_row, uint64_t sample) {
  const bool is_ragged = !of.offsets.empty();
  const uint64_t begin =
      is_ragged ? static_cast<uint64_t>(of.offsets[sample]) : sample * of.sample_keys;
  const uint64_t end =
      is_ragged ? static_cast<uint64_t>(of.offsets[sample + 1]) : begin + of.sample_keys;
  return {static_cast<uint32_t>(first_row + begin), static_cast<uint32_t>(first_row + end)};
}

}  // namespace

FedInput DeviceFeed::Rows(size_t index, std::span<const Prediction* const> group, uint64_t begin,
                          uint64_t count) {
  const NetworkSignature::Input& input = signature_.inputs[index];
  FedInput fed = {.dim = input.dim,
                  .sample_rows = group.front()->inputs[index].sample_keys,
                  .pooling = input.pooling};
  // The first of all rows; a request without keys of the table has none.
  for (const Prediction* request : group) {
    const float* const rows = request->inputs[index].rows;
    if (rows != nullptr && (fed.rows == nullptr || rows < fed.rows)) fed.rows = rows;
  }
  if (group.front()->inputs[index].rows == fed.rows && IsUniform(index, group, input.dim)) {
    if (fed.rows != nullptr) fed.rows += begin * fed.sample_rows * input.dim;
    return fed;
  }
  bags_.resize(signature_.inputs.size());
  std::vector<BagPlace>& bags = bags_[index];
  bags.clear();
  bags.reserve(count);
  uint64_t request_begin = 0;
  for (const Prediction* request : group) {
    const PredictionInput& of = request->inputs[index];
    const uint64_t from = std::max(begin, request_begin);
    const uint64_t to = std::min(begin + count, request_begin + request->batch);
    const uint64_t first_row =
        of.rows == nullptr ? 0 : static_cast<uint64_t>(of.rows - fed.rows) / input.dim;
    for (uint64_t sample = from; sample < to; ++sample)
      bags.push_back(PlaceOf(of, first_row, sample - request_begin));
    request_begin += request->batch;
  }
  fed.bags = bags;
  return fed;
}

}  // namespace hps
