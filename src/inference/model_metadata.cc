#include "inference/model_metadata.h"

#include <utility>

#include "inference/prediction_plan.h"
#include "inference/request_plan.h"

namespace hps {
namespace {

TensorMetadata Tensor(std::string name, Datatype datatype, std::vector<int64_t> shape) {
  return {.name = std::move(name), .datatype = datatype, .shape = std::move(shape)};
}

std::vector<int64_t> BatchOf(const std::vector<int64_t>& sample_dims) {
  std::vector<int64_t> dims = {-1};
  dims.insert(dims.end(), sample_dims.begin(), sample_dims.end());
  return dims;
}

// What a request for predictions brings beside the tables' keys, and what it gets.
void AddNetwork(const ModelVersion& version, ModelMetadata& metadata) {
  const NetworkSignature& signature = version.predictor()->signature();
  std::vector<bool> is_read(version.tables().size());
  for (const NetworkSignature::Input& input : signature.inputs) {
    if (input.table.has_value()) {
      is_read[*input.table] = true;
    } else {
      metadata.inputs.push_back(
          Tensor(input.name, DatatypeOf(input.element), BatchOf(input.sample_dims)));
    }
  }
  for (size_t i = 0; i < is_read.size(); ++i) {
    if (!is_read[i]) continue;
    metadata.inputs.push_back(
        Tensor(version.tables()[i].name + std::string(kOffsetsSuffix), Datatype::kInt64, {-1}));
  }
  for (const NetworkSignature::Output& output : signature.outputs)
    metadata.outputs.push_back(Tensor(output.name, Datatype::kFp32, BatchOf(output.sample_dims)));
  if (!HasDesConvention(version)) return;
  metadata.inputs.push_back(Tensor(std::string(kDenseInput), Datatype::kFp32, {1, -1}));
  metadata.inputs.push_back(Tensor(std::string(kColumnsInput), Datatype::kInt64, {1, -1}));
  metadata.inputs.push_back(Tensor(std::string(kRowIndexInput), Datatype::kInt32, {1, -1}));
}

}  // namespace

ModelMetadata DescribeModel(const std::string& name, const ModelVersion& version) {
  ModelMetadata metadata{.name = name, .version = version.number_text()};
  metadata.tables.assign(version.specs().begin(), version.specs().end());
  if (version.predictor() != nullptr) AddNetwork(version, metadata);
  for (const ModelVersion::Table& table : version.tables()) {
    metadata.inputs.push_back(Tensor(table.name, Datatype::kInt64, {-1}));
    metadata.outputs.push_back(
        Tensor(table.name, Datatype::kFp32, {-1, static_cast<int64_t>(table.dim)}));
    metadata.outputs.push_back(
        Tensor(table.name + std::string(kStatusSuffix), Datatype::kUint8, {-1}));
  }
  if (HasKeysConvention(version)) {
    const auto table_count = static_cast<int64_t>(version.tables().size());
    metadata.inputs.push_back(Tensor(std::string(kKeysInput), Datatype::kInt64, {1, -1}));
    metadata.inputs.push_back(
        Tensor(std::string(kKeyCountsInput), Datatype::kInt32, {1, table_count}));
  }
  if (HasKeysConvention(version) || HasDesConvention(version))
    metadata.outputs.push_back(Tensor(std::string(kRowsOutput), Datatype::kFp32, {-1}));
  return metadata;
}

}  // namespace hps
