// A read-only view of an ONNX graph, without protobuf: what the splitter and executors walk over.
//
// Every name, shape and span was checked by OnnxModel: nodes are in topological order, each value
// is defined once, and the bytes of a tensor fit its shape and type. The views point into the
// OnnxModel that made the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hps {

// The element types that a tensor may have here; values as in ONNX's TensorProto.DataType.
enum class OnnxElement : uint8_t {
  kFloat32 = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kBfloat16 = 16,
};

inline constexpr int kOnnxDimsMax = 8;

// Bytes of one element; 0 for a number that is none of the types above.
size_t OnnxElementBytes(int32_t type);

// A constant: an initializer, or the value of a Constant node.
struct OnnxTensor {
  OnnxElement element = OnnxElement::kFloat32;
  std::vector<int64_t> dims;
  std::span<const std::byte> bytes;  // little-endian, row-major, not necessarily aligned

  uint64_t element_count() const { return bytes.size() / OnnxElementBytes(int32_t(element)); }
  // As integers. REQUIRES: kInt32 or kInt64; else empty.
  std::vector<int64_t> Integers() const;
};

// An input or output of the graph. A dimension that is named or not known is -1.
struct OnnxValue {
  std::string name;
  OnnxElement element = OnnxElement::kFloat32;
  std::vector<int64_t> dims;
};

struct OnnxNode {
  std::string_view op;
  std::string_view name;                 // often empty
  std::vector<std::string_view> inputs;  // an omitted optional input is empty
  std::vector<std::string_view> outputs;
  std::map<std::string_view, std::vector<int64_t>> integers{};  // attributes INT and INTS
  std::map<std::string_view, std::vector<float>> floats{};      // FLOAT and FLOATS
  std::map<std::string_view, std::string_view> texts{};         // STRING
  std::map<std::string_view, OnnxTensor> tensors{};             // TENSOR

  // The attribute, or `otherwise`.
  int64_t Integer(std::string_view attribute, int64_t otherwise) const;
  float Float(std::string_view attribute, float otherwise) const;
};

struct OnnxGraph {
  int64_t opset = 0;
  std::vector<OnnxValue> inputs;  // without those that only give an initializer's type
  std::vector<OnnxValue> outputs;
  std::vector<OnnxNode> nodes;  // Constant nodes are not here
  std::map<std::string_view, OnnxTensor> constants;

  const OnnxTensor* Constant(std::string_view name) const;
  const OnnxValue* Input(std::string_view name) const;
};

}  // namespace hps
