// What a model can be asked for, and how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hps/table_spec.h"
#include "inference/model_version.h"
#include "inference/tensor.h"

namespace hps {

struct TensorMetadata {
  std::string name;
  Datatype datatype = Datatype::kInt64;
  std::vector<int64_t> shape;  // -1 = any
};

// Every input and output of all conventions (request_plan.h, prediction_plan.h). A request brings
// its keys in one of the ways, so that each input alone is optional; it may ask for all outputs.
struct ModelMetadata {
  std::string name;
  std::string version;
  std::vector<TableSpec> tables;  // declared order
  std::vector<TensorMetadata> inputs;
  std::vector<TensorMetadata> outputs;
};

ModelMetadata DescribeModel(const std::string& name, const ModelVersion& version);

}  // namespace hps
