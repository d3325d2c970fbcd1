// The dense network of a model: what `hps import` takes beside the tables.
#pragma once

#include <string>
#include <vector>

namespace hps {

// How the rows of a sample's keys become one input of the network.
enum class RowPooling {
  kSum,   // [batch, dim]
  kMean,  // [batch, dim]; a sample without keys gets zeros
  kNone,  // [batch, keys, dim], every row by itself
};

struct NetworkInput {
  std::string name;   // as the network calls it
  std::string table;  // without the model's name; empty: the client sends the input
  RowPooling pooling = RowPooling::kSum;
};

struct ModelNetwork {
  std::string onnx;  // an ONNX file without external data
  std::vector<NetworkInput> inputs;
  std::string digest;  // of both, in hexadecimal digits
};

// The table of a store that keeps a model's network, MODEL/__network__. It is no table of the
// model: no lookup reads it.
inline constexpr char kNetworkTable[] = "__network__";

}  // namespace hps
