#include "network/onnx/model.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "network/onnx/client_sizes.h"
#include "network/onnx/operators.h"
#include "network/onnx/structure.h"
#include "network/onnx/tensor_data.h"
#include "onnx/onnx-ml.pb.h"

namespace hps {
namespace {

bool IsOwnDomain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

std::string NodeText(const ::onnx::NodeProto& node) {
  return absl::StrCat("node '", node.name(), "' (", node.op_type(), ")");
}

absl::StatusOr<int64_t> OwnOpset(const ::onnx::ModelProto& model) {
  int64_t opset = 0;
  for (const ::onnx::OperatorSetIdProto& set : model.opset_import()) {
    if (IsOwnDomain(set.domain())) opset = set.version();
  }
  if (opset >= OnnxModel::kOpsetMin && opset <= OnnxModel::kOpsetMax) return opset;
  return absl::InvalidArgumentError(absl::StrCat(
      "its opset is ", opset, "; read are ", OnnxModel::kOpsetMin, " to ", OnnxModel::kOpsetMax));
}

absl::Status CheckParts(const ::onnx::ModelProto& model) {
  if (!model.has_graph()) return absl::InvalidArgumentError("it has no graph");
  if (model.functions_size() != 0 || model.training_info_size() != 0)
    return absl::InvalidArgumentError(
        "it has functions or training information, which are not read");
  const ::onnx::GraphProto& graph = model.graph();
  if (graph.sparse_initializer_size() != 0)
    return absl::InvalidArgumentError("it has sparse tensors, which are not read");
  if (graph.output_size() == 0) return absl::InvalidArgumentError("its graph has no output");
  return absl::OkStatus();
}

absl::StatusOr<OnnxValue> ReadValue(const ::onnx::ValueInfoProto& info, const char* kind) {
  const auto refused = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(kind, " '", info.name(), "': ", what));
  };
  if (info.name().empty()) return refused("it has no name");
  if (!info.type().has_tensor_type()) return refused("it is not a tensor");
  const ::onnx::TypeProto::Tensor& type = info.type().tensor_type();
  if (OnnxElementBytes(type.elem_type()) == 0)
    return refused(absl::StrCat("elements of ONNX type ", type.elem_type(), " are not supported"));
  if (!type.has_shape()) return refused("it has no shape");
  if (type.shape().dim_size() > kOnnxDimsMax)
    return refused(absl::StrCat("it has over ", kOnnxDimsMax, " dimensions"));
  OnnxValue value{.name = info.name(), .element = static_cast<OnnxElement>(type.elem_type())};
  for (const ::onnx::TensorShapeProto::Dimension& dim : type.shape().dim()) {
    const bool is_known = dim.has_dim_value() && dim.dim_value() >= 0;
    value.dims.push_back(is_known ? dim.dim_value() : -1);
  }
  return value;
}

OnnxTensor ViewOf(const ::onnx::TensorProto& tensor) {
  return {.element = static_cast<OnnxElement>(tensor.data_type()),
          .dims = {tensor.dims().begin(), tensor.dims().end()},
          .bytes = AsBytes(std::string_view(tensor.raw_data()))};
}

absl::StatusOr<OnnxNode> ReadNode(const ::onnx::NodeProto& node) {
  OnnxNode view{.op = node.op_type(),
                .name = node.name(),
                .inputs = {node.input().begin(), node.input().end()},
                .outputs = {node.output().begin(), node.output().end()}};
  for (const ::onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g() || attribute.graphs_size() != 0 || attribute.has_sparse_tensor() ||
        attribute.sparse_tensors_size() != 0 || attribute.has_ref_attr_name()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NodeText(node), ": its attribute '", attribute.name(), "' is not read"));
    }
    std::vector<int64_t>& integers = view.integers[attribute.name()];
    if (attribute.type() == ::onnx::AttributeProto::INT) integers = {attribute.i()};
    if (attribute.type() == ::onnx::AttributeProto::INTS)
      integers = {attribute.ints().begin(), attribute.ints().end()};
    if (attribute.type() == ::onnx::AttributeProto::FLOAT)
      view.floats[attribute.name()] = {attribute.f()};
    if (attribute.type() == ::onnx::AttributeProto::FLOATS)
      view.floats[attribute.name()] = {attribute.floats().begin(), attribute.floats().end()};
    if (attribute.type() == ::onnx::AttributeProto::STRING)
      view.texts[attribute.name()] = attribute.s();
  }
  return view;
}

// The value of a Constant node as a tensor, or null: its other forms are left to the engine.
::onnx::TensorProto* ConstantOf(::onnx::NodeProto& node) {
  if (node.op_type() != "Constant" || node.output_size() != 1) return nullptr;
  for (::onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == "value" && attribute.has_t()) return attribute.mutable_t();
  }
  return nullptr;
}

// Fills a view of a model's graph and normalizes the model's tensors on the way.
class GraphReader {
 public:
  GraphReader(::onnx::GraphProto& graph, const std::string& folder, uint64_t external_bytes_max,
              OnnxGraph& view)
      : graph_(graph), folder_(folder), bytes_left_(external_bytes_max), view_(view) {}

  absl::Status Read() {
    for (::onnx::TensorProto& tensor : *graph_.mutable_initializer()) {
      HPS_RETURN_IF_ERROR(NormalizeTensor(folder_, tensor, bytes_left_));
      HPS_RETURN_IF_ERROR(Define(tensor.name()));
      view_.constants.emplace(tensor.name(), ViewOf(tensor));
    }
    for (const ::onnx::ValueInfoProto& info : graph_.input()) {
      if (view_.constants.contains(info.name())) continue;
      HPS_ASSIGN_OR_RETURN(OnnxValue value, ReadValue(info, "input"));
      HPS_RETURN_IF_ERROR(Define(info.name()));
      view_.inputs.push_back(std::move(value));
    }
    for (::onnx::NodeProto& node : *graph_.mutable_node()) HPS_RETURN_IF_ERROR(AddNode(node));
    for (const ::onnx::ValueInfoProto& info : graph_.output()) {
      if (!defined_.contains(info.name())) {
        return absl::InvalidArgumentError(
            absl::StrCat("output '", info.name(), "': no node makes it"));
      }
      HPS_ASSIGN_OR_RETURN(OnnxValue value, ReadValue(info, "output"));
      view_.outputs.push_back(std::move(value));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Define(std::string_view name) {
    if (!name.empty() && defined_.insert(name).second) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "value '", absl::string_view(name.data(), name.size()), "' is defined twice, or unnamed"));
  }

  absl::Status AddNode(::onnx::NodeProto& node) {
    if (!IsOwnDomain(node.domain()) || !IsKnownOnnxOperator(node.op_type())) {
      return absl::InvalidArgumentError(
          absl::StrCat(NodeText(node), ": the operator is not supported",
                       node.domain().empty() ? "" : ", of domain ", node.domain()));
    }
    for (const std::string& input : node.input()) {
      if (input.empty() || defined_.contains(input)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(NodeText(node), ": its input '", input, "' is not defined before it"));
    }
    if (node.output().empty() || node.output(0).empty())
      return absl::InvalidArgumentError(absl::StrCat(NodeText(node), ": it has no output"));
    HPS_ASSIGN_OR_RETURN(OnnxNode view, ReadNode(node));
    ::onnx::TensorProto* const constant = ConstantOf(node);
    for (::onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) {
        HPS_RETURN_IF_ERROR(NormalizeTensor("", *attribute.mutable_t(), bytes_left_));
        view.tensors.emplace(attribute.name(), ViewOf(attribute.t()));
      }
      if (attribute.tensors_size() != 0)
        return absl::InvalidArgumentError(absl::StrCat(NodeText(node), ": a list of tensors"));
    }
    for (const std::string& output : node.output()) {
      if (!output.empty()) HPS_RETURN_IF_ERROR(Define(output));
    }
    if (constant != nullptr) {
      view_.constants.emplace(node.output(0), ViewOf(*constant));
    } else {
      view_.nodes.push_back(std::move(view));
    }
    return absl::OkStatus();
  }

  ::onnx::GraphProto& graph_;
  const std::string& folder_;
  uint64_t bytes_left_;
  OnnxGraph& view_;
  std::set<std::string_view> defined_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t bytes_max) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return absl::NotFoundError("there is no such file");
  if (!std::filesystem::is_regular_file(status))
    return absl::InvalidArgumentError("it is not a regular file");
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return absl::DataLossError("its size can't be read");
  if (bytes > bytes_max) {
    return absl::OutOfRangeError(
        absl::StrCat("it has ", bytes, " bytes; the maximum is ", bytes_max));
  }
  std::string text(bytes, '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == EACCES) return absl::PermissionDeniedError("it may not be read");
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!file) return absl::DataLossError("it can't be read");
  return text;
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

OnnxModel::OnnxModel(std::unique_ptr<::onnx::ModelProto> proto) : proto_(std::move(proto)) {}
OnnxModel::OnnxModel(OnnxModel&&) noexcept = default;
OnnxModel& OnnxModel::operator=(OnnxModel&&) noexcept = default;
OnnxModel::~OnnxModel() = default;

absl::StatusOr<OnnxModel> OnnxModel::Make(std::span<const std::byte> bytes,
                                          const OnnxLimits& limits, const std::string& folder) {
  if (bytes.size() > std::min<uint64_t>(limits.bytes_max, INT_MAX - 1)) {
    return absl::OutOfRangeError(
        absl::StrCat("it has ", bytes.size(), " bytes; the maximum is ", limits.bytes_max));
  }
  HPS_ASSIGN_OR_RETURN(const uint64_t structure_bytes, OnnxStructureBytes(bytes));
  if (structure_bytes > limits.structure_bytes_max) {
    return absl::OutOfRangeError(absl::StrCat("it has ", structure_bytes,
                                              " bytes besides the raw data of its "
                                              "initializers; the maximum is ",
                                              limits.structure_bytes_max));
  }
  OnnxModel model(std::make_unique<::onnx::ModelProto>());
  if (!model.proto_->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::InvalidArgumentError("it is not an ONNX model: protobuf can't read it");
  HPS_RETURN_IF_ERROR(CheckParts(*model.proto_));
  HPS_ASSIGN_OR_RETURN(model.graph_.opset, OwnOpset(*model.proto_));
  GraphReader reader(*model.proto_->mutable_graph(), folder, limits.bytes_max - bytes.size(),
                     model.graph_);
  HPS_RETURN_IF_ERROR(reader.Read());
  HPS_RETURN_IF_ERROR(CheckSizesOfClients(model.graph_));
  return model;
}

absl::StatusOr<OnnxModel> OnnxModel::Parse(std::span<const std::byte> bytes,
                                           const OnnxLimits& limits) {
  return Make(bytes, limits, "");
}

absl::StatusOr<OnnxModel> OnnxModel::Read(const std::string& path, const OnnxLimits& limits) {
  const absl::StatusOr<std::string> bytes = ReadFile(path, limits.bytes_max);
  if (!bytes.ok()) return WithPath(path, bytes.status());
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder.push_back('.');
  absl::StatusOr<OnnxModel> model = Make(AsBytes(std::string_view(*bytes)), limits, folder);
  if (!model.ok()) return WithPath(path, model.status());
  return model;
}

absl::StatusOr<std::string> OnnxModel::Serialize() const {
  std::string bytes;
  if (proto_->ByteSizeLong() > INT_MAX || !proto_->SerializeToString(&bytes))
    return absl::OutOfRangeError("an ONNX file without external data has at most 2 GiB");
  return bytes;
}

}  // namespace hps
