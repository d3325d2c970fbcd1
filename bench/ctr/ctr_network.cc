#include "bench/ctr/ctr_network.h"

#include <cmath>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "onnx/onnx-ml.pb.h"

namespace hps::bench {
namespace {

class NetworkWriter {
 public:
  NetworkWriter() {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(17);
    model_.mutable_graph()->set_name("dlrm");
  }

  std::string Input(const std::string& name, int64_t width) {
    Describe(name, width, *graph().add_input());
    return name;
  }
  void Output(const std::string& name, int64_t width) {
    Describe(name, width, *graph().add_output());
  }

  // Adds a node; returns its output.
  std::string Node(const std::string& op, const std::vector<std::string>& inputs) {
    ::onnx::NodeProto& node = *graph().add_node();
    node.set_op_type(op);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(absl::StrCat(op, graph().node_size()));
    return node.output(0);
  }
  // An attribute of the last node.
  void Attribute(const std::string& name, int64_t value) {
    ::onnx::AttributeProto& attribute = NewAttribute(name);
    attribute.set_type(::onnx::AttributeProto::INT);
    attribute.set_i(value);
  }
  void Attribute(const std::string& name, const std::vector<int64_t>& values) {
    ::onnx::AttributeProto& attribute = NewAttribute(name);
    attribute.set_type(::onnx::AttributeProto::INTS);
    for (const int64_t value : values) attribute.add_ints(value);
  }

  std::string Integers(const std::vector<int64_t>& values) {
    return Constant(::onnx::TensorProto::INT64, {std::ssize(values)},
                    AsText(AsBytes(std::span(values))));
  }
  // One layer, with weights of a size that keeps the outputs of its inputs' size.
  std::string Layer(const std::string& input, int64_t from, int64_t to) {
    const std::string weight = Random({to, from}, 1 / std::sqrt(static_cast<float>(from)));
    const std::string sum = Node("Gemm", {input, weight, Random({to}, 0.1F)});
    Attribute("transB", 1);
    return sum;
  }

  std::string Bytes() const { return model_.SerializeAsString(); }

 private:
  ::onnx::GraphProto& graph() { return *model_.mutable_graph(); }

  ::onnx::AttributeProto& NewAttribute(const std::string& name) {
    ::onnx::AttributeProto& attribute =
        *graph().mutable_node(graph().node_size() - 1)->add_attribute();
    attribute.set_name(name);
    return attribute;
  }

  static void Describe(const std::string& name, int64_t width, ::onnx::ValueInfoProto& info) {
    info.set_name(name);
    ::onnx::TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(::onnx::TensorProto::FLOAT);
    type.mutable_shape()->add_dim()->set_dim_param("batch");
    type.mutable_shape()->add_dim()->set_dim_value(width);
  }

  std::string Random(const std::vector<int64_t>& dims, float deviation) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = distribution(random_);
    return Constant(::onnx::TensorProto::FLOAT, dims,
                    AsText(AsBytes(std::span<const float>(values))));
  }

  std::string Constant(int type, const std::vector<int64_t>& dims, std::string_view bytes) {
    ::onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(absl::StrCat("constant", graph().initializer_size()));
    tensor.set_data_type(type);
    for (const int64_t dim : dims) tensor.add_dims(dim);
    tensor.set_raw_data(std::string(bytes));
    return tensor.name();
  }

  ::onnx::ModelProto model_;
  std::mt19937_64 random_{20};
};

// Where the products of two different features are, in [feature, feature].
std::vector<int64_t> Pairs(int64_t features) {
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < features; ++i)
    for (int64_t j = 0; j < i; ++j) pairs.push_back(i * features + j);
  return pairs;
}

}  // namespace

ModelNetwork MakeCtrNetwork(const std::vector<std::string>& tables, uint32_t dim) {
  NetworkWriter writer;
  ModelNetwork network;
  std::string bottom = writer.Input(kCtrDenseInput, kCtrDense);
  network.inputs.push_back({.name = kCtrDenseInput});
  std::vector<std::string> features;
  for (const std::string& table : tables) {
    features.push_back(writer.Input(table + "_rows", dim));
    network.inputs.push_back({.name = features.back(), .table = table});
  }
  int64_t width = kCtrDense;
  for (const int64_t units : {int64_t{512}, int64_t{256}, int64_t{dim}}) {
    bottom = writer.Node("Relu", {writer.Layer(bottom, std::exchange(width, units), units)});
  }
  features.insert(features.begin(), bottom);
  const auto count = std::ssize(features);
  std::string value = writer.Node("Concat", features);
  writer.Attribute("axis", 1);
  value = writer.Node("Reshape", {value, writer.Integers({-1, count, dim})});
  const std::string turned = writer.Node("Transpose", {value});
  writer.Attribute("perm", {0, 2, 1});
  value = writer.Node("MatMul", {value, turned});
  value = writer.Node("Reshape", {value, writer.Integers({-1, count * count})});
  const std::vector<int64_t> pairs = Pairs(count);
  value = writer.Node("Gather", {value, writer.Integers(pairs)});
  writer.Attribute("axis", 1);
  value = writer.Node("Concat", {bottom, value});
  writer.Attribute("axis", 1);
  width = std::ssize(pairs) + dim;
  for (const int64_t units : {512, 512, 256})
    value = writer.Node("Relu", {writer.Layer(value, std::exchange(width, units), units)});
  value = writer.Node("Sigmoid", {writer.Layer(value, width, 1)});
  writer.Output(value, 1);
  network.onnx = writer.Bytes();
  network.digest = NetworkDigest(network);
  return network;
}

}  // namespace hps::bench
