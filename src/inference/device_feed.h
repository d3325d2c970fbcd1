// How the rows of a batch that was looked up on a device become inputs of the network.
//
// For one thread at a time; keeps its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/prediction.h"
#include "network/device_rows.h"
#include "network/onnx/network_signature.h"

namespace hps {

class DeviceFeed {
 public:
  // `signature` outlives it.
  explicit DeviceFeed(const NetworkSignature& signature) : signature_(signature) {}

  // Input `index`, which reads a table, for samples [begin, begin + count) of the requests; valid
  // until the next call for that input. REQUIRES: the network can run the requests together, and
  // the rows of all of them are in one room.
  FedInput Rows(size_t index, std::span<const Prediction* const> group, uint64_t begin,
                uint64_t count);

 private:
  const NetworkSignature& signature_;
  std::vector<std::vector<BagPlace>> bags_;  // by input
};

}  // namespace hps
