#include "inference/tensor_checks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"

namespace hps {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (const int64_t dim : shape.values()) absl::StrAppend(&text, text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

absl::Status Invalid(const InputTensor& input, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("input '", Text(input.name), "': ", what));
}

absl::Status AskedTwice(std::string_view output) {
  return absl::InvalidArgumentError(
      absl::StrCat("output '", Text(output), "': it is asked for twice"));
}

namespace {

// The elements that a shape has; checked, so that nothing can wrap.
absl::StatusOr<uint64_t> ElementCount(const InputTensor& input) {
  uint64_t count = 1;
  if (input.shape.dim_count > kTensorDimsMax) return Invalid(input, "too many dimensions");
  for (const int64_t dim : input.shape.values()) {
    if (dim < 0) return Invalid(input, absl::StrCat("a dimension of ", dim));
    const auto product = CheckedMultiply(count, static_cast<uint64_t>(dim));
    if (!product.has_value()) return Invalid(input, "its shape is beyond 64 bits");
    count = *product;
  }
  return count;
}

}  // namespace

// Elements of an input of `element_bytes` each, against the bytes that came.
absl::StatusOr<uint64_t> CheckedElements(const InputTensor& input, size_t element_bytes) {
  HPS_ASSIGN_OR_RETURN(const uint64_t count, ElementCount(input));
  const auto needed = CheckedMultiply(count, element_bytes);
  if (needed.has_value() && *needed == input.bytes.size()) return count;
  return Invalid(input, absl::StrCat("shape ", ShapeText(input.shape), " of ",
                                     Text(DatatypeName(input.datatype)), " does not fit its ",
                                     input.bytes.size(), " bytes"));
}

absl::StatusOr<uint64_t> CheckedKeys(const InputTensor& input) {
  switch (input.datatype) {
    case Datatype::kInt64:
    case Datatype::kUint64:
    case Datatype::kInt32:
    case Datatype::kUint32:
      return CheckedElements(input, DatatypeBytes(input.datatype));
    default:
      return Invalid(input, absl::StrCat("keys are INT64, UINT64, INT32 or UINT32, not ",
                                         Text(DatatypeName(input.datatype))));
  }
}

absl::Status CheckSampleTotal(uint64_t sample_count) {
  if (sample_count <= kKeysPerCallMax) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("the request asks for ", sample_count,
                                            " samples; the maximum is ", kKeysPerCallMax));
}

absl::Status CheckKeyTotal(uint64_t key_count) {
  if (key_count <= kKeysPerCallMax) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the request asks for ", key_count, " keys; the maximum is ", kKeysPerCallMax));
}

absl::StatusOr<size_t> OutputBytes(std::string_view name, uint64_t count, uint64_t element_bytes,
                                   const PlanLimits& limits) {
  const auto bytes = CheckedMultiply(count, element_bytes);
  if (bytes.has_value() && *bytes <= limits.response_bytes_max) return static_cast<size_t>(*bytes);
  return absl::OutOfRangeError(absl::StrCat("output '", Text(name),
                                            "' would be larger than [server] response_bytes_max = ",
                                            limits.response_bytes_max, " bytes"));
}

absl::Status CheckResponse(std::span<const OutputTensor> outputs, const PlanLimits& limits) {
  uint64_t bytes = 0;  // each is at most the maximum, so that the sum can't wrap
  for (const OutputTensor& output : outputs) {
    bytes += output.byte_count;
    if (bytes > limits.response_bytes_max) {
      return absl::OutOfRangeError(
          absl::StrCat("the answer would be larger than [server] response_bytes_max = ",
                       limits.response_bytes_max, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFlat(const InputTensor& input) {
  const auto dims = input.shape.values();
  if (dims.size() == 1 || (dims.size() == 2 && dims[0] == 1)) return absl::OkStatus();
  return Invalid(input, absl::StrCat("its shape is [n] or [1, n], not ", ShapeText(input.shape)));
}

namespace {

// Blocks without an exit inside become vector instructions: a large batch has a million numbers.
template <typename T>
bool HasNanOf(std::span<const std::byte> bytes) {
  constexpr size_t kBlock = 256;
  const auto is_nan = [bytes](size_t i) {
    const auto value = LoadLittleEndian<T>(bytes.data() + i * sizeof(T));
    return static_cast<int>(value != value);
  };
  const size_t count = bytes.size() / sizeof(T);
  size_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    int nan_count = 0;
    for (size_t i = 0; i < kBlock; ++i) nan_count += is_nan(begin + i);
    if (nan_count > 0) return true;
  }
  for (; begin < count; ++begin)
    if (is_nan(begin) != 0) return true;
  return false;
}

// Of 16-bit numbers: whether all bits of the exponent are set and one of the fraction is.
bool HasNan16(std::span<const std::byte> bytes, uint16_t exponent) {
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    const auto bits = LoadLittleEndian<uint16_t>(bytes.data() + i);
    if ((bits & exponent) == exponent && (bits & 0x7fff & ~exponent) != 0) return true;
  }
  return false;
}

}  // namespace

bool FitsInt32(std::span<const std::byte> bytes) {
  for (size_t at = 0; at + sizeof(int64_t) <= bytes.size(); at += sizeof(int64_t)) {
    const auto value = LoadLittleEndian<int64_t>(bytes.data() + at);
    if (value < INT32_MIN || value > INT32_MAX) return false;
  }
  return true;
}

bool HasNan(Datatype datatype, std::span<const std::byte> elements) {
  switch (datatype) {
    case Datatype::kFp32:
      return HasNanOf<float>(elements);
    case Datatype::kFp64:
      return HasNanOf<double>(elements);
    case Datatype::kFp16:
      return HasNan16(elements, 0x7c00);
    case Datatype::kBf16:
      return HasNan16(elements, 0x7f80);
    default:
      return false;
  }
}

Datatype DatatypeOf(OnnxElement element) {
  using enum OnnxElement;
  static constexpr std::pair<OnnxElement, Datatype> kDatatypes[] = {
      {kFloat32, Datatype::kFp32}, {kUint8, Datatype::kUint8},  {kInt8, Datatype::kInt8},
      {kInt32, Datatype::kInt32},  {kInt64, Datatype::kInt64},  {kBool, Datatype::kBool},
      {kFloat16, Datatype::kFp16}, {kFloat64, Datatype::kFp64}, {kBfloat16, Datatype::kBf16}};
  const auto* const found =
      std::ranges::find(kDatatypes, element, &std::pair<OnnxElement, Datatype>::first);
  HPS_CHECK(found != std::end(kDatatypes));
  return found->second;
}

void AddOutputTensor(std::vector<OutputTensor>& outputs, std::string_view name, Datatype datatype,
                     const Shape& shape, size_t byte_count) {
  OutputTensor& output = outputs.emplace_back();
  output.name = name;
  output.datatype = datatype;
  output.shape = shape;
  output.byte_count = byte_count;
}

}  // namespace hps
