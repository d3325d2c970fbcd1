// The dense network of a model: what `hps import` takes beside the tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hps {

// How the rows of a sample's keys become one input of the network.
enum class RowPooling : uint8_t {
  kSum,   // [batch, dim]
  kMean,  // [batch, dim]; a sample without keys gets zeros
  kNone,  // [batch, keys, dim], every row by itself
};

struct NetworkInput {
  std::string name;   // as the network calls it
  std::string table;  // without the model's name; empty: the client sends the input
  RowPooling pooling = RowPooling::kSum;

  friend bool operator==(const NetworkInput&, const NetworkInput&) = default;
};

struct ModelNetwork {
  std::string onnx;  // an ONNX file without external data
  std::vector<NetworkInput> inputs{};
  std::string digest{};  // of both, in hexadecimal digits (NetworkDigest)
};

// The largest network that is taken, in bytes of its file with its external data.
inline constexpr uint64_t kNetworkBytesMax = uint64_t{256} << 20;

// "sum", "mean", "none".
const char* PoolingName(RowPooling pooling);

// XXH3-128 of the file and the inputs, in hexadecimal digits.
std::string NetworkDigest(const ModelNetwork& network);

}  // namespace hps
