// Networks for tests of plans and of their executor: each operator, the models of CTR in small,
// random ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "network/onnx/test_models.h"
#include "network/plan/plan.h"
#include "network/plan/test_network_writer.h"

namespace hps {

struct TestNetwork {
  const char* name;
  std::function<TestModel()> make;
  int steps = -1;  // of its plan; -1: any
};

// The values as elements of the input's type.
inline std::vector<std::byte> InputBytes(const OnnxValue& input, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  const auto append = [&bytes](auto value) {
    const size_t begin = bytes.size();
    bytes.resize(begin + sizeof(value));
    std::memcpy(bytes.data() + begin, &value, sizeof(value));
  };
  for (const float value : values) {
    switch (input.element) {
      case OnnxElement::kInt64:
        append(static_cast<int64_t>(value));
        break;
      case OnnxElement::kInt32:
        append(static_cast<int32_t>(value));
        break;
      case OnnxElement::kBool:
        append(static_cast<uint8_t>(value != 0 ? 1 : 0));
        break;
      case OnnxElement::kFloat64:
        append(double{value});
        break;
      default:
        append(value);
    }
  }
  return bytes;
}

// Row-major values of every input: in [-2, 2], integers in -2 to 2, booleans 0 and 1.
inline std::vector<std::vector<float>> RandomInputs(const DensePlan& plan, int64_t batch,
                                                    uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-2, 2);
  std::vector<std::vector<float>> inputs;
  for (const OnnxValue& input : plan.inputs) {
    int64_t count = batch;
    for (size_t d = 1; d < input.dims.size(); ++d) count *= input.dims[d];
    std::vector<float>& made = inputs.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      const float value = values(random);
      const bool is_float = input.element == OnnxElement::kFloat32;
      const bool is_boolean = input.element == OnnxElement::kBool;
      made.push_back(is_float ? value
                              : (is_boolean ? (value > 0 ? 1.0F : 0.0F) : std::round(value)));
    }
  }
  return inputs;
}

inline TestModel ChainOfLayers(int layers, int64_t width) {
  NetworkWriter writer(3);
  std::string x = writer.Input("x", {width});
  for (int i = 0; i < layers; ++i) x = writer.Linear(x, width, width, true);
  return writer.Done(x, {width});
}

// DLRM as PyTorch exports it: `tables` inputs of rows, bottom MLP, all pairs, top MLP. Where
// `is_stacked`, features are stacked by Unsqueeze; else concatenated and reshaped.
struct DlrmShape {
  int64_t dense = 5;
  int64_t tables = 4;
  int64_t width = 16;
  std::vector<int64_t> bottom = {24};  // hidden layers
  std::vector<int64_t> top = {40, 20};
  bool is_stacked = true;
};

inline TestModel DlrmNetwork(const DlrmShape& shape) {
  NetworkWriter writer(11);
  std::string x = writer.Input("dense", {shape.dense});
  std::vector<std::string> features = {""};
  for (int64_t t = 0; t < shape.tables; ++t)
    features.push_back(writer.Input("rows_" + std::to_string(t), {shape.width}));
  int64_t from = shape.dense;
  for (const int64_t to : shape.bottom) {
    x = writer.Linear(x, from, to, true);
    from = to;
  }
  x = features[0] = writer.Linear(x, from, shape.width, true);
  const int64_t rows = shape.tables + 1;
  std::string joined;
  if (shape.is_stacked) {
    for (std::string& feature : features)
      feature = writer.Node("Unsqueeze", {feature, writer.Integers({1})});
    joined = writer.Concat(features, 1);
  } else {
    joined = writer.Node("Reshape",
                         {writer.Concat(features, 1), writer.Integers({-1, rows, shape.width})});
  }
  std::string pairs = writer.Node("MatMul", {joined, writer.Transpose(joined, {0, 2, 1})});
  pairs = writer.Node("Flatten", {pairs});
  std::vector<int64_t> below;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < i; ++j) below.push_back(i * rows + j);
  pairs = writer.Gather(pairs, below, 1);
  std::string y = writer.Concat({x, pairs}, 1);
  from = shape.width + static_cast<int64_t>(below.size());
  for (const int64_t to : shape.top) {
    y = writer.Linear(y, from, to, true);
    from = to;
  }
  return writer.Done(writer.Node("Sigmoid", {writer.Linear(y, from, 1)}), {1});
}

inline TestModel DcnNetwork() {
  NetworkWriter writer(12);
  const std::string x = writer.Concat(
      {writer.Input("a", {8}), writer.Input("b", {8}), writer.Input("dense", {5})}, 1);
  std::string cross = x;
  for (int i = 0; i < 2; ++i) {
    cross = writer.Node(
        "Add", {writer.Node("Mul", {x, writer.Linear(cross, 21, i == 0 ? 1 : 21)}), cross});
  }
  const std::string deep = writer.Linear(writer.Linear(x, 21, 32, true), 32, 16, true);
  const std::string y = writer.Linear(writer.Concat({cross, deep}, 1), 37, 1);
  return writer.Done(writer.Node("Squeeze", {writer.Node("Sigmoid", {y}), writer.Integers({1})}),
                     {});
}

inline TestModel DeepFmNetwork() {
  NetworkWriter writer(13);
  std::vector<std::string> factors;
  for (const char* name : {"a", "b", "c"})
    factors.push_back(writer.Node("Unsqueeze", {writer.Input(name, {8}), writer.Integers({1})}));
  const std::string joined = writer.Concat(factors, 1);
  const auto sum = [&](const std::string& of) {
    std::string made = writer.Node("ReduceSum", {of, writer.Integers({1})});
    writer.Attribute("keepdims", 0);
    return made;
  };
  const std::string total = sum(joined);
  const std::string squares = sum(writer.Node("Mul", {joined, joined}));
  const std::string pairs =
      writer.Node("Mul", {sum(writer.Node("Sub", {writer.Node("Mul", {total, total}), squares})),
                          writer.Scalar(0.5F)});
  const std::string wide = writer.Node(
      "Squeeze",
      {writer.Node("Add", {writer.Input("u", {1}), writer.Input("v", {1})}), writer.Integers({1})});
  const std::string in =
      writer.Concat({writer.Node("Flatten", {joined}), writer.Input("dense", {4})}, 1);
  const std::string deep = writer.Node(
      "Squeeze", {writer.Linear(writer.Linear(in, 28, 32, true), 32, 1), writer.Integers({1})});
  const std::string y = writer.Node(
      "Add", {writer.Node("Add", {writer.Node("Add", {writer.Floats({1}), wide}), pairs}), deep});
  return writer.Done(writer.Node("Sigmoid", {y}), {});
}

inline TestModel WdlNetwork() {
  NetworkWriter writer(14);
  const std::string wide = writer.Node("Add", {writer.Input("u", {1}), writer.Input("v", {1})});
  const std::string history = writer.Node("Flatten", {writer.Input("history", {5, 8})});
  std::string deep =
      writer.Concat({writer.Input("dense", {4}), writer.Input("a", {8}), history}, 1);
  deep = writer.Linear(writer.Linear(deep, 52, 64, true), 64, 1);
  return writer.Done(writer.Node("Sigmoid", {writer.Node("Add", {wide, deep})}), {1});
}

// Two experts, a gate of softmax over them, and two towers.
inline TestModel MmoeNetwork() {
  NetworkWriter writer(15);
  const std::string x = writer.Input("x", {24});
  std::vector<std::string> experts;
  for (int i = 0; i < 3; ++i)
    experts.push_back(
        writer.Node("Unsqueeze", {writer.Linear(x, 24, 16, true), writer.Integers({1})}));
  const std::string joined = writer.Concat(experts, 1);  // [batch, 3, 16]
  std::vector<std::string> towers;
  for (int i = 0; i < 2; ++i) {
    const std::string gate = writer.Node("Softmax", {writer.Linear(x, 24, 3)});
    writer.Attribute("axis", -1);
    const std::string row = writer.Node("Unsqueeze", {gate, writer.Integers({1})});
    const std::string mixed =
        writer.Node("Squeeze", {writer.Node("MatMul", {row, joined}), writer.Integers({1})});
    towers.push_back(writer.Linear(mixed, 16, 1));
  }
  return writer.Done(writer.Node("Sigmoid", {writer.Concat(towers, 1)}), {2});
}

// Attention of an item over a history, with PRelu and a mask.
inline TestModel DinNetwork() {
  NetworkWriter writer(16);
  const std::string item =
      writer.Node("Unsqueeze", {writer.Input("item", {8}), writer.Integers({1})});
  const std::string history = writer.Input("history", {6, 8});
  const std::string mask = writer.Input("mask", {6});
  const std::string many = writer.Node("Expand", {item, writer.Integers({1, 6, 8})});
  const std::string both = writer.Concat(
      {many, history, writer.Node("Sub", {many, history}), writer.Node("Mul", {many, history})},
      -1);
  std::string hidden = writer.Node(
      "Add", {writer.Node("MatMul", {both, writer.Floats({32, 12})}), writer.Floats({12})});
  hidden = writer.Node("PRelu", {hidden, writer.Floats({1})});
  const std::string weights = writer.Node(
      "Squeeze", {writer.Node("MatMul", {hidden, writer.Floats({12, 1})}), writer.Integers({2})});
  const std::string seen = writer.Node("Greater", {mask, writer.Scalar(0)});
  const std::string masked = writer.Node("Where", {seen, weights, writer.Scalar(-1e4F)});
  const std::string scores =
      writer.Node("Unsqueeze", {writer.Node("Softmax", {masked}), writer.Integers({1})});
  const std::string pooled =
      writer.Node("Squeeze", {writer.Node("MatMul", {scores, history}), writer.Integers({1})});
  const std::string y = writer.Concat({pooled, writer.Node("Flatten", {item})}, 1);
  return writer.Done(writer.Node("Sigmoid", {writer.Linear(y, 16, 1)}), {1});
}

// One operator between an input [batch, 6] and the output.
inline TestModel UnaryNetwork(const std::string& op, bool is_positive = false) {
  NetworkWriter writer(17);
  std::string x = writer.Input("x", {6});
  if (is_positive) x = writer.Node("Add", {writer.Node("Abs", {x}), writer.Scalar(0.5F)});
  return writer.Done(writer.Node(op, {x}), {6});
}

inline TestModel BinaryNetwork(const std::string& op) {
  NetworkWriter writer(18);
  const std::string x = writer.Input("x", {3, 6});
  const std::string y = writer.Input("y", {3, 1});
  const std::string z = writer.Node(op, {x, y});
  const std::string w =
      writer.Node(op, {writer.Node("Add", {z, writer.Floats({6})}), writer.Scalar(0.75F)});
  return writer.Done(w, {3, 6});
}

inline TestModel ComparisonNetwork(const std::string& op) {
  NetworkWriter writer(19);
  const std::string x = writer.Input("x", {6});
  const std::string y = writer.Input("y", {6});
  const std::string rounded = writer.Node("Round", {x});
  const std::string is_so = writer.Node(op, {rounded, writer.Node("Round", {y})});
  const std::string both = writer.Node(
      "And", {is_so, writer.Node("Not", {writer.Node("Less", {x, writer.Scalar(-1)})})});
  return writer.Done(writer.Node("Where", {both, x, writer.Scalar(3)}), {6});
}

inline TestModel ReduceNetwork(const std::string& op, bool keeps, std::vector<int64_t> axes) {
  NetworkWriter writer(20, 18);
  const std::string x = writer.Input("x", {3, 5, 4});
  const std::string y = writer.Node(op, {x, writer.Integers(axes)});
  writer.Attribute("keepdims", keeps ? 1 : 0);
  std::vector<int64_t> dims = {3, 5, 4};
  for (int64_t& axis : axes) dims[static_cast<size_t>((axis + 4) % 4 - 1)] = keeps ? 1 : 0;
  std::erase(dims, 0);
  return writer.Done(y, dims);
}

inline TestModel LayoutNetwork() {
  NetworkWriter writer(21);
  const std::string x = writer.Input("x", {4, 6});
  const std::string turned = writer.Transpose(x, {0, 2, 1});  // [batch, 6, 4]
  const std::string slice =
      writer.Node("Slice", {turned, writer.Integers({4}), writer.Integers({-7}),
                            writer.Integers({1}), writer.Integers({-2})});  // rows 4, 2, 0
  const std::string picked = writer.Gather(slice, {3, 0, 0}, 2);
  const std::string flat =
      writer.Node("Reshape", {picked, writer.Integers({0, -1})});  // [batch, 9]
  const std::string shape = writer.Node("Shape", {flat});
  const std::string first = writer.Gather(shape, {0}, 0);
  const std::string wanted = writer.Concat({first, writer.Integers({3, 3})}, 0);
  const std::string cube = writer.Node("Reshape", {flat, wanted});
  return writer.Done(writer.Node("Mul", {cube, writer.Floats({3, 1})}), {3, 3});
}

inline TestModel SplitNetwork() {
  NetworkWriter writer(22);
  const std::string x = writer.Linear(writer.Input("x", {7}), 7, 12);
  ::onnx::NodeProto& node = *writer.model().graph().add_node();
  node.set_op_type("Split");
  node.set_name("parts");
  node.add_input(x);
  node.add_input(writer.Integers({2, 4, 6}));
  for (const char* name : {"p", "q", "r"}) node.add_output(name);
  writer.Attribute("axis", 1);
  const std::string y = writer.Concat({"r", writer.Node("Tanh", {"p"}), "q"}, 1);
  return writer.Done(writer.Node("Add", {y, x}), {12});
}

inline TestModel NormalizationNetwork() {
  NetworkWriter writer(23);
  const std::string x = writer.Input("x", {3, 10});
  const std::string y =
      writer.Node("LayerNormalization", {x, writer.Floats({10}), writer.Floats({10})});
  const std::string z = writer.Node("LogSoftmax", {y});
  writer.Attribute("axis", 1);
  return writer.Done(z, {3, 10});
}

inline TestModel BatchNormalizationNetwork(bool is_behind_gemm) {
  NetworkWriter writer(24);
  std::string x = writer.Input("x", {10});
  if (is_behind_gemm) x = writer.Linear(x, 10, 10);
  const std::string variance = writer.Node("Abs", {writer.Floats({10})});
  x = writer.Node("BatchNormalization",
                  {x, writer.Floats({10}), writer.Floats({10}), writer.Floats({10}), variance});
  return writer.Done(writer.Node("Relu", {x}), {10});
}

inline TestModel AttentionNetwork() {
  NetworkWriter writer(25);
  const std::string x = writer.Input("x", {5, 12});
  const auto heads = [&](const std::string& of, std::vector<int64_t> order) {
    return writer.Transpose(writer.Node("Reshape", {of, writer.Integers({0, 5, 3, 4})}), order);
  };
  const std::string q = heads(writer.Node("MatMul", {x, writer.Floats({12, 12})}), {0, 2, 1, 3});
  const std::string k = heads(writer.Node("MatMul", {x, writer.Floats({12, 12})}), {0, 2, 3, 1});
  const std::string v = heads(writer.Node("MatMul", {x, writer.Floats({12, 12})}), {0, 2, 1, 3});
  const std::string scores = writer.Node(
      "Softmax", {writer.Node("Div", {writer.Node("MatMul", {q, k}), writer.Scalar(2)})});
  const std::string mixed = writer.Transpose(writer.Node("MatMul", {scores, v}), {0, 2, 1, 3});
  return writer.Done(writer.Node("Reshape", {mixed, writer.Integers({-1, 5, 12})}), {5, 12});
}

inline TestModel WithAttribute(const std::string& op, const std::string& attribute, float value) {
  NetworkWriter writer(26);
  const std::string y = writer.Node(op, {writer.Input("x", {6})});
  writer.FloatAttribute(attribute, value);
  return writer.Done(y, {6});
}

inline TestModel ClipNetwork() {
  NetworkWriter writer(27);
  const std::string x = writer.Input("x", {6});
  return writer.Done(writer.Node("Clip", {x, writer.Scalar(-0.5F), writer.Scalar(0.75F)}), {6});
}

// Sums of more tensors than one step reads.
inline TestModel WideNetwork() {
  NetworkWriter writer(28);
  std::vector<std::string> inputs;
  for (int i = 0; i < 11; ++i) inputs.push_back(writer.Input("x" + std::to_string(i), {1}));
  std::string chain = inputs[0];
  for (int i = 1; i < 11; ++i) chain = writer.Node("Add", {chain, inputs[static_cast<size_t>(i)]});
  const std::string sum = writer.Node("Sum", inputs);
  const std::string mean = writer.Node("Mean", inputs);
  const std::string most = writer.Node("Max", inputs);
  return writer.Done(writer.Concat({chain, sum, mean, most}, 1), {4});
}

// Integers, booleans and doubles of the client.
inline TestModel TypesNetwork() {
  NetworkWriter writer(29);
  const auto as_float = [&writer](const std::string& of) {
    std::string made = writer.Node("Cast", {of});
    writer.Attribute("to", ::onnx::TensorProto::FLOAT);
    return made;
  };
  const std::string x = writer.Input("x", {5});
  const std::string a = as_float(writer.Input("a", ::onnx::TensorProto::INT64, {5}));
  const std::string b = as_float(writer.Input("b", ::onnx::TensorProto::INT32, {5}));
  const std::string is_on = writer.Input("is_on", ::onnx::TensorProto::BOOL, {5});
  const std::string d = as_float(writer.Input("d", ::onnx::TensorProto::DOUBLE, {5}));
  const std::string cut = writer.Node("Cast", {x});
  writer.Attribute("to", ::onnx::TensorProto::INT32);
  const std::string is_not_zero = writer.Node("Cast", {b});
  writer.Attribute("to", ::onnx::TensorProto::BOOL);
  const std::string sum = writer.Node(
      "Sum", {writer.Node("Where", {is_on, a, b}), as_float(cut), as_float(is_not_zero), d});
  return writer.Done(sum, {5});
}

// Attributes that later opsets have as inputs, and the old Softmax over all dimensions behind.
inline TestModel OldOpsetNetwork() {
  NetworkWriter writer(30, 9);
  const std::string x = writer.Input("x", {4, 6});
  const std::string slice = writer.Node("Slice", {x});
  writer.IntegersAttribute("starts", {1, 0});
  writer.IntegersAttribute("ends", {9, -2});
  writer.IntegersAttribute("axes", {1, 2});
  const std::string clip = writer.Node("Clip", {slice});
  writer.FloatAttribute("min", -1);
  writer.FloatAttribute("max", 1.5F);
  const std::string soft = writer.Node("Softmax", {clip});  // [batch, 3, 4]
  const std::string wide = writer.Node("Unsqueeze", {soft});
  writer.IntegersAttribute("axes", {1, 3});
  const std::string narrow = writer.Node("Squeeze", {wide});
  writer.IntegersAttribute("axes", {3});
  return writer.Done(narrow, {1, 3, 4});
}

// Repeated elements that become part of a larger dimension must be copied: no stride walks them.
inline TestModel RepeatedNetwork() {
  NetworkWriter writer(32);
  const std::string x = writer.Node("Unsqueeze", {writer.Input("x", {3}), writer.Integers({2})});
  const std::string many = writer.Node("Expand", {x, writer.Integers({1, 3, 4})});
  return writer.Done(writer.Node("Relu", {writer.Node("Flatten", {many})}), {12});
}

// A constant repeated for each sample, as PyTorch exports `expand`; sizes computed from shapes.
inline TestModel ExpandNetwork() {
  NetworkWriter writer(31, 13);
  const std::string x = writer.Input("x", {6});
  const std::string batch = writer.Gather(writer.Node("Shape", {x}), {0}, 0);
  const std::string wanted = writer.Concat({batch, writer.Integers({-1})}, 0);
  const std::string ones = writer.Node("ConstantOfShape", {writer.Integers({2})});
  auto& tensor = *writer.Attribute("value", ::onnx::AttributeProto::TENSOR).mutable_t();
  tensor.set_data_type(::onnx::TensorProto::INT64);
  tensor.add_dims(1);
  tensor.add_int64_data(1);
  const std::string is_open =
      writer.Node("Equal", {wanted, writer.Node("Mul", {ones, writer.Integers({-1, -1})})});
  const std::string size = writer.Node("Where", {is_open, ones, wanted});
  const std::string many = writer.Node("Expand", {writer.Floats({1, 6}), size});
  const std::string twice = writer.Node(
      "Reshape",
      {writer.Concat({x, many}, 1),
       writer.Concat({writer.Node("Mul", {batch, writer.Integers({2})}), writer.Integers({6})},
                     0)});  // [2 x batch, 6]
  const std::string y = writer.Linear(twice, 6, 8, true);
  return writer.Done(writer.Node("Reshape", {y, writer.Integers({-1, 16})}), {16});
}

inline TestModel GemmNetwork() {
  NetworkWriter writer(32);
  const std::string x = writer.Input("x", {3, 10});
  const std::string flat = writer.Node("Flatten", {x});
  const std::string y =
      writer.Node("Gemm", {flat, writer.Floats({30, 70}), writer.Floats({1, 70})});
  writer.FloatAttribute("alpha", 0.5F);
  writer.FloatAttribute("beta", 2.0F);
  const std::string z = writer.Node("MatMul", {x, writer.Floats({10, 24})});  // [batch, 3, 24]
  const std::string biased = writer.Node("Relu", {writer.Node("Add", {writer.Floats({24}), z})});
  // Into columns 1 to 70 of a concatenation: not aligned.
  const std::string all = writer.Concat(
      {writer.Node("Slice",
                   {flat, writer.Integers({0}), writer.Integers({1}), writer.Integers({1})}),
       y, writer.Node("Flatten", {biased})},
      1);
  return writer.Done(all, {143});
}

// A network of random operators that all keep [batch, 8].
inline TestModel RandomNetwork(uint32_t seed) {
  NetworkWriter writer(seed);
  std::mt19937 random(seed);
  const auto below = [&random](size_t end) { return random() % end; };
  std::vector<std::string> values = {writer.Input("x", {8}), writer.Input("y", {8})};
  for (int i = 0; i < 14; ++i) {
    const std::string a = values[values.size() - 1 - below(std::min<size_t>(values.size(), 3))];
    const std::string b = values[below(values.size())];
    switch (below(11)) {
      case 0:
        values.push_back(writer.Linear(a, 8, 8, below(2) == 0));
        break;
      case 1:
        values.push_back(writer.Node("Tanh", {writer.Node("Add", {a, b})}));
        break;
      case 2:
        values.push_back(writer.Node("Mul", {writer.Node("Sigmoid", {a}), b}));
        break;
      case 3:
        values.push_back(writer.Gather(writer.Concat({a, b}, 1), {0, 9, 2, 11, 4, 13, 6, 15}, 1));
        break;
      case 4:
        values.push_back(writer.Linear(writer.Concat({a, b, writer.Node("Neg", {a})}, 1), 24, 8));
        break;
      case 5:
        values.push_back(
            writer.Node("LayerNormalization", {a, writer.Floats({8}), writer.Floats({8})}));
        break;
      case 6: {
        const std::string square = writer.Node("Reshape", {a, writer.Integers({-1, 4, 2})});
        values.push_back(writer.Node("Flatten", {writer.Transpose(square, {0, 2, 1})}));
        break;
      }
      case 7: {
        const std::string sum = writer.Node("ReduceMean", {a});
        writer.IntegersAttribute("axes", {1});
        values.push_back(writer.Node("Sub", {b, sum}));
        break;
      }
      case 8:
        values.push_back(writer.Node("Softmax", {a}));
        break;
      case 9: {
        const std::string is_less = writer.Node("Less", {a, writer.Scalar(0.25F)});
        values.push_back(writer.Node("Where", {is_less, a, b}));
        break;
      }
      default: {
        const std::string left = writer.Node(
            "Slice", {a, writer.Integers({0}), writer.Integers({3}), writer.Integers({1})});
        const std::string right = writer.Node(
            "Slice", {b, writer.Integers({3}), writer.Integers({8}), writer.Integers({1})});
        values.push_back(writer.Concat({left, writer.Node("Relu", {right})}, 1));
        break;
      }
    }
  }
  const std::string last = writer.Node("Sum", {values.back(), values[values.size() - 2], "x", "y"});
  return writer.Done(last, {8});
}

inline std::vector<TestNetwork> TestNetworks() {
  std::vector<TestNetwork> all = {
      // Steps: the dense inputs into aligned memory, two GEMMs below, pairs, three GEMMs above, of
      // which the last takes Sigmoid. No concatenation is copied.
      {"Dlrm", [] { return DlrmNetwork({}); }, 7},
      {"DlrmReshaped", [] { return DlrmNetwork({.is_stacked = false}); }, 7},
      {"Dcn", DcnNetwork},
      {"DeepFm", DeepFmNetwork},
      {"Wdl", WdlNetwork},
      {"Mmoe", MmoeNetwork},
      {"Din", DinNetwork},
      {"Layout", LayoutNetwork},
      {"Split", SplitNetwork},
      {"Normalization", NormalizationNetwork},
      {"BatchNormalization", [] { return BatchNormalizationNetwork(false); }},
      {"BatchNormalizationFolded", [] { return BatchNormalizationNetwork(true); }, 2},
      {"Attention", AttentionNetwork},
      {"Clip", ClipNetwork, 1},
      {"Wide", WideNetwork},
      {"Types", TypesNetwork},
      {"OldOpset", OldOpsetNetwork},
      {"Expand", ExpandNetwork},
      {"Repeated", RepeatedNetwork},
      {"Gemm", GemmNetwork},
      {"LeakyRelu", [] { return WithAttribute("LeakyRelu", "alpha", 0.3F); }, 1},
      {"Elu", [] { return WithAttribute("Elu", "alpha", 0.7F); }, 1},
      {"Selu", [] { return WithAttribute("Selu", "alpha", 1.5F); }, 1},
      {"HardSigmoid", [] { return WithAttribute("HardSigmoid", "alpha", 0.3F); }, 1},
      {"ReduceSumMiddle", [] { return ReduceNetwork("ReduceSum", false, {2}); }},
      {"ReduceMeanTwo",
       [] {
         return ReduceNetwork("ReduceMean", true, {1, -1});
       }},
      {"ReduceMaxTwo",
       [] {
         return ReduceNetwork("ReduceMax", false, {1, 2});
       }},
      {"ReduceMinAll",
       [] {
         return ReduceNetwork("ReduceMin", false, {1, 2, 3});
       }},
      {"ReduceProd", [] { return ReduceNetwork("ReduceProd", false, {3}); }},
      {"ReduceL1", [] { return ReduceNetwork("ReduceL1", false, {3}); }},
      {"ReduceL2", [] { return ReduceNetwork("ReduceL2", true, {3}); }},
      {"ReduceSumSquare", [] { return ReduceNetwork("ReduceSumSquare", false, {3}); }},
  };
  for (const char* op :
       {"Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Ceil", "Floor", "Round", "Sign",
        "Sin", "Cos", "Softplus", "Softsign", "HardSwish", "Mish"})
    all.push_back({op, [op] { return UnaryNetwork(op); }, 1});
  for (const char* op : {"Log", "Sqrt", "Reciprocal"})
    all.push_back({op, [op] { return UnaryNetwork(op, true); }, 1});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Min", "Max"})
    all.push_back({op, [op] { return BinaryNetwork(op); }, 1});
  for (const char* op : {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"})
    all.push_back({op, [op] { return ComparisonNetwork(op); }});
  return all;
}

}  // namespace hps
