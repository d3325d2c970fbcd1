// One request of predictions, resolved against the network's signature: what its inputs are fed
// with and where its outputs go. A plain value that is filled in again for the next request; its
// vectors keep their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hps {

struct PredictionInput {
  // Keys of each sample where `offsets` is empty: rows of sample i are [i x keys, (i + 1) x keys).
  uint64_t sample_keys = 1;
  // [batch + 1] where samples have keys of different numbers: rows of sample i are
  // [offsets[i], offsets[i + 1]).
  std::vector<int64_t> offsets;
  // The rows of the input's table, [n, dim]; set when they have been looked up. In the memory of
  // the device for PredictionSession::RunFromRows, else in the host's.
  const float* rows = nullptr;

  // What the client sent, of the network's type, and its dimensions after the batch.
  std::span<const std::byte> sent;  // not necessarily aligned
  std::vector<int64_t> sample_dims;

  void Clear() {
    sample_keys = 1;
    offsets.clear();
    rows = nullptr;
    sent = {};
    sample_dims.clear();
  }
};

struct Prediction {
  uint64_t batch = 0;                   // samples
  std::vector<PredictionInput> inputs;  // as the signature lists them
  std::vector<std::byte*> outputs;      // likewise, [batch, ...] float32; null: not wanted

  // Makes it ready for a network with this many inputs and outputs.
  void Reset(size_t input_count, size_t output_count) {
    batch = 0;
    inputs.resize(input_count);
    for (PredictionInput& input : inputs) input.Clear();
    outputs.assign(output_count, nullptr);
  }
};

}  // namespace hps
