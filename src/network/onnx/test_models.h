// ONNX models for tests, written with protobuf and not with the code under test.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "onnx/onnx-ml.pb.h"

namespace hps {

// A small language for graphs: each call adds one thing and returns its name.
class TestModel {
 public:
  explicit TestModel(int64_t opset = 17) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    model_.mutable_graph()->set_name("test");
  }

  // A dimension of -1 is named "batch".
  std::string Input(const std::string& name, int type, const std::vector<int64_t>& dims) {
    return Describe(*model_.mutable_graph()->add_input(), name, type, dims);
  }
  std::string Output(const std::string& name, int type, const std::vector<int64_t>& dims) {
    return Describe(*model_.mutable_graph()->add_output(), name, type, dims);
  }
  std::string Floats(const std::string& name, const std::vector<int64_t>& dims,
                     const std::vector<float>& values) {
    return Constant(name, ::onnx::TensorProto::FLOAT, dims, AsText(AsBytes(std::span(values))));
  }
  std::string Integers(const std::string& name, const std::vector<int64_t>& dims,
                       const std::vector<int64_t>& values) {
    return Constant(name, ::onnx::TensorProto::INT64, dims, AsText(AsBytes(std::span(values))));
  }
  // Returns its output, which has the name of the node.
  std::string Node(const std::string& op, const std::string& name,
                   const std::vector<std::string>& inputs) {
    ::onnx::NodeProto& node = *model_.mutable_graph()->add_node();
    node.set_op_type(op);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(name);
    return name;
  }
  // Adds an attribute to the last node.
  void Attribute(const std::string& name, int64_t value) {
    ::onnx::GraphProto& graph = *model_.mutable_graph();
    ::onnx::AttributeProto& attribute = *graph.mutable_node(graph.node_size() - 1)->add_attribute();
    attribute.set_name(name);
    attribute.set_type(::onnx::AttributeProto::INT);
    attribute.set_i(value);
  }

  ::onnx::ModelProto& proto() { return model_; }
  ::onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  std::string Bytes() const { return model_.SerializeAsString(); }

 private:
  static std::string Describe(::onnx::ValueInfoProto& info, const std::string& name, int type,
                              const std::vector<int64_t>& dims) {
    info.set_name(name);
    ::onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (const int64_t dim : dims) {
      auto& added = *tensor.mutable_shape()->add_dim();
      if (dim < 0) {
        added.set_dim_param("batch");
      } else {
        added.set_dim_value(dim);
      }
    }
    return name;
  }
  std::string Constant(const std::string& name, int type, const std::vector<int64_t>& dims,
                       std::string_view bytes) {
    ::onnx::TensorProto& tensor = *model_.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const int64_t dim : dims) tensor.add_dims(dim);
    tensor.set_raw_data(std::string(bytes));
    return name;
  }

  ::onnx::ModelProto model_;
};

// score = Sigmoid(x [batch, 2] * w + b), as [batch, 1].
inline TestModel LogisticModel() {
  TestModel model;
  model.Input("x", ::onnx::TensorProto::FLOAT, {-1, 2});
  model.Floats("w", {2, 1}, {0.5F, -0.25F});
  model.Floats("b", {1}, {0.125F});
  model.Node("Sigmoid", "score",
             {model.Node("Add", "sum", {model.Node("MatMul", "product", {"x", "w"}), "b"})});
  model.Output("score", ::onnx::TensorProto::FLOAT, {-1, 1});
  return model;
}

}  // namespace hps
