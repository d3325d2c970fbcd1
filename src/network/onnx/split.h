// Divides a trained model into embedding tables and the dense network that is left.
//
// A table is a constant of two dimensions that a Gather reads by keys of the client: by an input of
// the graph, or by a part of one (Cast, Identity, Reshape, Slice, Split, Squeeze, Unsqueeze,
// Transpose, Flatten, Gather with constant indices). Its rows become an input of the network in the
// place of the Gather; where a sum or mean over a bag of keys is all that reads them, in the place
// of that. A row's number is its key. What can't be divided stays in the network, and the remarks
// say why.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/types.h"
#include "network/onnx/graph.h"
#include "network/onnx/model.h"

namespace hps {

struct OnnxSplitTable {
  std::string name;  // fit for a table's name
  uint64_t row_count = 0;
  uint32_t dim = 0;
  OnnxElement element = OnnxElement::kFloat32;  // or kFloat16, kBfloat16
  std::span<const std::byte> rows;              // [row_count, dim], of the model
  std::string network_input;                    // float32
  RowPooling pooling = RowPooling::kSum;

  Dtype dtype() const;
};

struct OnnxSplit {
  std::vector<OnnxSplitTable> tables;  // in the order in which the graph reads them
  std::string network;                 // an ONNX file without external data
  std::vector<std::string> remarks;    // for the user: where keys come from, what was not divided
};

// Errors: INVALID_ARGUMENT (no table was found; the message says what was looked at), OUT_OF_RANGE
// (the network is over 2 GiB).
absl::StatusOr<OnnxSplit> SplitOnnx(const OnnxModel& model);

}  // namespace hps
