// The text of a model.toml: what a model's directory says of its tables and its network. src/node
// reads it.
#pragma once

#include <span>
#include <string>

#include "hps/model_network.h"

namespace hps {

inline constexpr char kModelFile[] = "model.toml";
inline constexpr char kNetworkFile[] = "dense.onnx";

struct ModelDescription {
  std::string name;
  std::span<const std::string> tables;  // in declared order, without the model's name
  bool has_network = false;             // in the file kNetworkFile
  std::span<const NetworkInput> inputs{};
};

std::string ModelToml(const ModelDescription& model);

// A basic string of TOML.
std::string QuoteToml(const std::string& text);

}  // namespace hps
