// The directory of a trained model: model.toml, which names its tables in declared order and what
// feeds its dense network; and the network's file (docs/ctr_models.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"

namespace hps {

struct ModelFiles {
  std::vector<std::string> tables;  // in declared order, without the model's name
  std::optional<ModelNetwork> network{};
};

// nullopt: the directory has no model.toml. Errors, with file, line and column: INVALID_ARGUMENT
// (no TOML, an unknown or missing setting, a network that the reader does not take), NOT_FOUND and
// others for the files, OUT_OF_RANGE (a network over kNetworkBytesMax).
absl::StatusOr<std::optional<ModelFiles>> ReadModelFiles(const std::string& directory);

// A network of ONNX with its external data, without inputs. Errors, which begin with the path: as
// above.
absl::StatusOr<ModelNetwork> ReadNetworkFile(const std::string& path);

// The network of `path` in the place of `imported` (null: none was imported). Inputs are fed as
// there; one that `imported` does not know and that has the name of a table gets its rows, their
// sum where the network takes [batch, dim], else each by itself. Errors: those of ReadNetworkFile.
absl::StatusOr<ModelNetwork> ReadNetworkInstead(const std::string& path,
                                                const ModelNetwork* imported,
                                                std::span<const TableSpec> tables);

}  // namespace hps
