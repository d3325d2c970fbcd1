// What a model's dense network takes and gives, resolved against the model's tables: the one check
// of a network's shapes, at import, at load and for requests.
//
// A plain value; the names are copies, so it outlives the network and the tables.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "network/onnx/graph.h"

namespace hps {

struct NetworkSignature {
  struct Input {
    std::string name;
    OnnxElement element = OnnxElement::kFloat32;
    std::vector<int64_t> sample_dims;  // the dimensions after the batch; -1 = any
    std::optional<uint32_t> table;     // index in the model's tables; none: the client sends it
    RowPooling pooling = RowPooling::kSum;
    uint32_t dim = 0;  // of the table
    uint64_t sample_keys =
        0;  // pooling "none": keys of each sample; 0 = as many as the request has
  };
  struct Output {
    std::string name;
    std::vector<int64_t> sample_dims;
    uint64_t sample_elements = 1;
  };

  std::vector<Input> inputs;  // as the network lists them
  std::vector<Output> outputs;
};

// `inputs` says which table feeds which input; an input of the graph that it does not name is sent
// by the client. `tables`: full names, MODEL/TABLE.
// Errors: INVALID_ARGUMENT, which names the input: the network has no such input, or it is named
// twice; the model has no such table; its shape does not fit the table's dim; a batch that is not
// of any size; an output whose size is not known; names that tables and the network share; a name
// that requests have for something else (KEYS, NUMKEYS, OUTPUT0, TABLE.offsets, TABLE.status).
absl::StatusOr<NetworkSignature> MakeNetworkSignature(const OnnxGraph& graph,
                                                      std::span<const NetworkInput> inputs,
                                                      std::span<const TableSpec> tables);

// As above, of a network's file, which the reader checks first. Errors: also those of
// OnnxModel::Parse.
absl::StatusOr<NetworkSignature> SignatureOf(const ModelNetwork& network,
                                             std::span<const TableSpec> tables);

}  // namespace hps
