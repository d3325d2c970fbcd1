// Writes networks for tests, a layer or an operator at a time; constants are random.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "network/onnx/test_models.h"

namespace hps {

// Adds what networks consist of.
class NetworkWriter {
 public:
  explicit NetworkWriter(uint32_t seed, int64_t opset = 17) : model_(opset), random_(seed) {}

  TestModel& model() { return model_; }

  std::string Input(const std::string& name, const std::vector<int64_t>& dims) {
    std::vector<int64_t> all = {-1};
    all.insert(all.end(), dims.begin(), dims.end());
    return model_.Input(name, ::onnx::TensorProto::FLOAT, all);
  }
  std::string Input(const std::string& name, ::onnx::TensorProto::DataType type,
                    const std::vector<int64_t>& dims) {
    std::vector<int64_t> all = {-1};
    all.insert(all.end(), dims.begin(), dims.end());
    return model_.Input(name, type, all);
  }
  std::string Floats(const std::vector<int64_t>& dims) {
    std::uniform_real_distribution<float> values(-0.5F, 0.5F);
    size_t count = 1;
    for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
    std::vector<float> made(count);
    for (float& value : made) value = values(random_);
    return model_.Floats(Name("floats"), dims, made);
  }
  std::string Integers(const std::vector<int64_t>& values) {
    return model_.Integers(Name("integers"), {static_cast<int64_t>(values.size())}, values);
  }
  std::string Scalar(float value) { return model_.Floats(Name("scalar"), {}, {value}); }
  std::string Node(const std::string& op, const std::vector<std::string>& inputs) {
    return model_.Node(op, Name(op), inputs);
  }
  void Attribute(const std::string& name, int64_t value) { model_.Attribute(name, value); }
  ::onnx::AttributeProto& Attribute(const std::string& name,
                                    ::onnx::AttributeProto::AttributeType type) {
    ::onnx::GraphProto& graph = model_.graph();
    auto& attribute = *graph.mutable_node(graph.node_size() - 1)->add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }
  void FloatAttribute(const std::string& name, float value) {
    Attribute(name, ::onnx::AttributeProto::FLOAT).set_f(value);
  }
  void IntegersAttribute(const std::string& name, const std::vector<int64_t>& values) {
    auto& attribute = Attribute(name, ::onnx::AttributeProto::INTS);
    for (const int64_t value : values) attribute.add_ints(value);
  }
  std::string Transpose(const std::string& x, const std::vector<int64_t>& order) {
    std::string made = Node("Transpose", {x});
    IntegersAttribute("perm", order);
    return made;
  }
  // A layer as PyTorch exports one.
  std::string Linear(const std::string& x, int64_t from, int64_t to, bool has_relu = false) {
    std::string made = Node("Gemm", {x, Floats({to, from}), Floats({to})});
    Attribute("transB", 1);
    return has_relu ? Node("Relu", {made}) : made;
  }
  std::string Concat(const std::vector<std::string>& parts, int64_t axis) {
    std::string made = Node("Concat", parts);
    Attribute("axis", axis);
    return made;
  }
  std::string Gather(const std::string& x, const std::vector<int64_t>& picked, int64_t axis) {
    std::string made = Node("Gather", {x, Integers(picked)});
    Attribute("axis", axis);
    return made;
  }
  TestModel Done(const std::string& output, const std::vector<int64_t>& dims) {
    std::vector<int64_t> all = {-1};
    all.insert(all.end(), dims.begin(), dims.end());
    model_.Output(output, ::onnx::TensorProto::FLOAT, all);
    return std::move(model_);
  }

 private:
  std::string Name(const std::string& of) { return of + "_" + std::to_string(++count_); }

  TestModel model_;
  std::mt19937 random_;
  int count_ = 0;
};

}  // namespace hps
