#include "network/onnx/graph.h"

#include <algorithm>

#include "base/bytes.h"

namespace hps {

size_t OnnxElementBytes(int32_t type) {
  switch (static_cast<OnnxElement>(type)) {
    case OnnxElement::kUint8:
    case OnnxElement::kInt8:
    case OnnxElement::kBool:
      return 1;
    case OnnxElement::kFloat16:
    case OnnxElement::kBfloat16:
      return 2;
    case OnnxElement::kFloat32:
    case OnnxElement::kInt32:
      return 4;
    case OnnxElement::kInt64:
    case OnnxElement::kFloat64:
      return 8;
  }
  return 0;
}

std::vector<int64_t> OnnxTensor::Integers() const {
  std::vector<int64_t> values;
  if (element != OnnxElement::kInt64 && element != OnnxElement::kInt32) return values;
  for (uint64_t i = 0; i < element_count(); ++i) {
    values.push_back(element == OnnxElement::kInt64
                         ? LoadLittleEndian<int64_t>(bytes.data() + i * sizeof(int64_t))
                         : LoadLittleEndian<int32_t>(bytes.data() + i * sizeof(int32_t)));
  }
  return values;
}

int64_t OnnxNode::Integer(std::string_view attribute, int64_t otherwise) const {
  const auto found = integers.find(attribute);
  return found == integers.end() || found->second.size() != 1 ? otherwise : found->second.front();
}

float OnnxNode::Float(std::string_view attribute, float otherwise) const {
  const auto found = floats.find(attribute);
  return found == floats.end() || found->second.size() != 1 ? otherwise : found->second.front();
}

const OnnxTensor* OnnxGraph::Constant(std::string_view name) const {
  const auto found = constants.find(name);
  return found == constants.end() ? nullptr : &found->second;
}

const OnnxValue* OnnxGraph::Input(std::string_view name) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const OnnxValue& input) { return input.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

}  // namespace hps
