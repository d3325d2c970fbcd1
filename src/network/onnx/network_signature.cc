#include "network/onnx/network_signature.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "network/onnx/model.h"
#include "types/names.h"

namespace hps {
namespace {

std::string ShapeText(std::span<const int64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ",
                    dims[i] >= 0 ? absl::StrCat(dims[i])
                    : i == 0     ? "batch"
                                 : "any");
  }
  return text + "]";
}

absl::Status Invalid(const char* kind, const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the network's ", kind, " '", name, "': ", what));
}

absl::Status CheckBatch(const char* kind, const OnnxValue& value) {
  if (!value.dims.empty() && value.dims.front() < 0) return absl::OkStatus();
  return Invalid(kind, value.name,
                 absl::StrCat("its shape is ", ShapeText(value.dims),
                              "; the first dimension must be a batch of any size: export the "
                              "model with a dynamic batch"));
}

std::vector<std::string> NamesOf(std::span<const TableSpec> tables) {
  std::vector<std::string> names;
  for (const TableSpec& table : tables)
    names.push_back(table.name.substr(table.name.find('/') + 1));
  return names;
}

// The names of requests that are not for the network (src/server/core/request_plan.h).
absl::Status CheckNotReserved(const char* kind, const std::string& name,
                              std::span<const std::string> tables) {
  std::vector<std::string> reserved = {"KEYS", "NUMKEYS", "OUTPUT0", "OUTPUT0.status"};
  for (const std::string& table : tables) {
    reserved.push_back(table + ".offsets");
    reserved.push_back(table + ".status");
  }
  if (std::find(reserved.begin(), reserved.end(), name) == reserved.end()) return absl::OkStatus();
  return Invalid(kind, name,
                 "requests have this name for keys or rows of tables: rename it in the model");
}

// Checks an input that gets rows against its table's dim.
absl::Status ResolveShape(const OnnxValue& value, NetworkSignature::Input& input) {
  const auto misfit = [&](const std::string& expected) {
    return Invalid(
        "input", value.name,
        absl::StrCat("its shape is ", ShapeText(value.dims), ", but rows of dim ", input.dim,
                     " with pooling \"", PoolingName(input.pooling), "\" are ", expected));
  };
  if (value.element != OnnxElement::kFloat32)
    return Invalid("input", value.name, "it gets rows, so it must be float32");
  const std::vector<int64_t>& dims = input.sample_dims;
  const auto is_dim = [&](int64_t size) { return size < 0 || size == int64_t{input.dim}; };
  if (input.pooling != RowPooling::kNone) {
    if (dims.size() == 1 && is_dim(dims[0])) return absl::OkStatus();
    return misfit(absl::StrCat("[batch, ", input.dim, "]"));
  }
  if (dims.size() == 2 && is_dim(dims[1]) && dims[0] != 0) {
    input.sample_keys = dims[0] < 0 ? 0 : static_cast<uint64_t>(dims[0]);
    return absl::OkStatus();
  }
  // [batch, keys x dim]: the same bytes.
  if (dims.size() == 1 && dims[0] > 0 && dims[0] % input.dim == 0) {
    input.sample_keys = static_cast<uint64_t>(dims[0]) / input.dim;
    return absl::OkStatus();
  }
  return misfit(absl::StrCat("[batch, keys, ", input.dim, "]"));
}

absl::Status AddInput(const OnnxValue& value, const NetworkInput* source,
                      std::span<const TableSpec> tables, NetworkSignature& signature) {
  HPS_RETURN_IF_ERROR(CheckBatch("input", value));
  NetworkSignature::Input& input = signature.inputs.emplace_back();
  input.name = value.name;
  input.element = value.element;
  input.sample_dims.assign(value.dims.begin() + 1, value.dims.end());
  const std::vector<std::string> names = NamesOf(tables);
  if (source == nullptr || source->table.empty()) {
    HPS_RETURN_IF_ERROR(CheckNotReserved("input", value.name, names));
    if (std::find(names.begin(), names.end(), value.name) == names.end()) return absl::OkStatus();
    return Invalid("input", value.name,
                   "the client sends it, so no table of the model may have its name");
  }
  const auto found = std::find(names.begin(), names.end(), source->table);
  if (found == names.end()) {
    return Invalid("input", value.name,
                   absl::StrCat("the model has no table '", source->table, "'",
                                NearestNameHint(source->table, names)));
  }
  input.table = static_cast<uint32_t>(found - names.begin());
  input.pooling = source->pooling;
  input.dim = tables[*input.table].dim;
  return ResolveShape(value, input);
}

absl::Status AddOutput(const OnnxValue& value, std::span<const TableSpec> tables,
                       NetworkSignature& signature) {
  HPS_RETURN_IF_ERROR(CheckBatch("output", value));
  NetworkSignature::Output& output = signature.outputs.emplace_back();
  output.name = value.name;
  output.sample_dims.assign(value.dims.begin() + 1, value.dims.end());
  for (const int64_t size : output.sample_dims) {
    const auto product = size < 0
                             ? std::nullopt
                             : CheckedMultiply(output.sample_elements, static_cast<uint64_t>(size));
    if (!product.has_value() || *product > kNetworkBytesMax) {
      return Invalid("output", value.name,
                     absl::StrCat("its shape is ", ShapeText(value.dims),
                                  "; every dimension but the batch must be known"));
    }
    output.sample_elements = *product;
  }
  const std::vector<std::string> names = NamesOf(tables);
  HPS_RETURN_IF_ERROR(CheckNotReserved("output", value.name, names));
  if (std::find(names.begin(), names.end(), value.name) == names.end()) return absl::OkStatus();
  return Invalid("output", value.name, "a table of the model has the same name");
}

}  // namespace

absl::StatusOr<NetworkSignature> MakeNetworkSignature(const OnnxGraph& graph,
                                                      std::span<const NetworkInput> inputs,
                                                      std::span<const TableSpec> tables) {
  std::map<std::string_view, const NetworkInput*> sources;
  for (const NetworkInput& input : inputs) {
    if (!sources.emplace(input.name, &input).second)
      return Invalid("input", input.name, "it is described twice");
    if (graph.Input(input.name) != nullptr) continue;
    std::vector<std::string> names;
    for (const OnnxValue& value : graph.inputs) names.push_back(value.name);
    return Invalid(
        "input", input.name,
        absl::StrCat("the network has no such input", NearestNameHint(input.name, names)));
  }
  NetworkSignature signature;
  for (const OnnxValue& value : graph.inputs) {
    const auto found = sources.find(value.name);
    HPS_RETURN_IF_ERROR(
        AddInput(value, found == sources.end() ? nullptr : found->second, tables, signature));
  }
  for (const OnnxValue& value : graph.outputs)
    HPS_RETURN_IF_ERROR(AddOutput(value, tables, signature));
  if (signature.inputs.empty() || signature.outputs.empty())
    return absl::InvalidArgumentError("the network has no inputs, or no outputs");
  return signature;
}

absl::StatusOr<NetworkSignature> SignatureOf(const ModelNetwork& network,
                                             std::span<const TableSpec> tables) {
  HPS_ASSIGN_OR_RETURN(
      const OnnxModel model,
      OnnxModel::Parse(AsBytes(std::string_view(network.onnx)), {.bytes_max = kNetworkBytesMax}));
  return MakeNetworkSignature(model.graph(), network.inputs, tables);
}

}  // namespace hps
