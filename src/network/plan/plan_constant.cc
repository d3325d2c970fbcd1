#include "network/plan/plan_constant.h"

#include <bit>

#include "base/bytes.h"
#include "base/macros.h"
#include "types/row_convert.h"

namespace hps {
namespace {

float FloatAt(const OnnxTensor& tensor, uint64_t i) {
  const std::byte* const at = tensor.bytes.data() + i * OnnxElementBytes(int32_t(tensor.element));
  switch (tensor.element) {
    case OnnxElement::kFloat64:
      return static_cast<float>(LoadLittleEndian<double>(at));
    case OnnxElement::kFloat16:
      return std::bit_cast<float>(Float16ToFloat32Bits(LoadLittleEndian<uint16_t>(at)));
    case OnnxElement::kBfloat16:
      return std::bit_cast<float>(uint32_t{LoadLittleEndian<uint16_t>(at)} << 16);
    default:
      return LoadLittleEndian<float>(at);
  }
}

int64_t IntegerAt(const OnnxTensor& tensor, uint64_t i) {
  const std::byte* const at = tensor.bytes.data() + i * OnnxElementBytes(int32_t(tensor.element));
  switch (tensor.element) {
    case OnnxElement::kInt8:
      return LoadLittleEndian<int8_t>(at);
    case OnnxElement::kInt32:
      return LoadLittleEndian<int32_t>(at);
    case OnnxElement::kInt64:
      return LoadLittleEndian<int64_t>(at);
    case OnnxElement::kBool:
      return LoadLittleEndian<uint8_t>(at) != 0 ? 1 : 0;
    default:
      return LoadLittleEndian<uint8_t>(at);
  }
}

}  // namespace

bool IsFloatElement(OnnxElement element) {
  return element == OnnxElement::kFloat32 || element == OnnxElement::kFloat64 ||
         element == OnnxElement::kFloat16 || element == OnnxElement::kBfloat16;
}

std::vector<int64_t> CompactStrides(std::span<const int64_t> dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

bool PlanConstant::IsFloat() const { return IsFloatElement(element); }

int64_t PlanConstant::ElementCount() const {
  return static_cast<int64_t>(IsFloat() ? floats.size() : integers.size());
}

std::optional<std::vector<int64_t>> PlanConstant::Integers() const {
  if (IsFloat()) return std::nullopt;
  std::vector<int64_t> values;
  for (const BatchNumber& number : integers) {
    if (number.per_sample != 0) return std::nullopt;
    values.push_back(number.fixed);
  }
  return values;
}

std::vector<float> PlanConstant::Floats() const {
  if (IsFloat()) return floats;
  std::vector<float> values;
  for (const BatchNumber& number : integers) {
    HPS_CHECK(number.per_sample == 0);
    values.push_back(static_cast<float>(number.fixed));
  }
  return values;
}

PlanView PlanConstant::View() const { return {.dims = dims, .strides = CompactStrides(dims)}; }

PlanConstant PlanConstant::Picked(const PlanView& view, std::span<const int32_t> indices) const {
  PlanConstant picked{.element = element, .dims = view.dims};
  const int64_t count = view.ElementCount();
  std::vector<int64_t> at(view.dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t from = view.offset;
    for (size_t d = 0; d < at.size(); ++d) {
      const bool is_gathered = static_cast<int>(d) == view.gather_dim;
      from += view.strides[d] *
              (is_gathered ? indices[static_cast<size_t>(view.gather_begin + at[d])] : at[d]);
    }
    if (IsFloat()) {
      picked.floats.push_back(floats[static_cast<size_t>(from)]);
    } else {
      picked.integers.push_back(integers[static_cast<size_t>(from)]);
    }
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < view.dims[d]) break;
      at[d] = 0;
    }
  }
  return picked;
}

PlanConstant ConstantOf(const OnnxTensor& tensor) {
  PlanConstant constant{.element = tensor.element, .dims = tensor.dims};
  for (uint64_t i = 0; i < tensor.element_count(); ++i) {
    if (constant.IsFloat()) {
      constant.floats.push_back(FloatAt(tensor, i));
    } else {
      constant.integers.push_back({.fixed = IntegerAt(tensor, i)});
    }
  }
  return constant;
}

}  // namespace hps
