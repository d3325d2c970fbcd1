// Tensors of the v2 protocol: what a request brings and what an answer carries, as views of memory
// that the protocol's codec owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace hps {

// Element types of the v2 protocol. Lookups read integers of 64 and 32 bits and answer kFp32 and
// kUint8; the others are known so that an error can name them.
enum class Datatype : uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
  kBytes,
};
inline constexpr std::array<std::string_view, 14> kDatatypeNames = {
    "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
    "INT32", "INT64", "FP16",   "BF16",   "FP32",   "FP64", "BYTES"};
// Bytes of one element; 0 for kBytes, whose elements differ.
inline constexpr std::array<uint8_t, 14> kDatatypeBytes = {1, 1, 2, 4, 8, 1, 2,
                                                           4, 8, 2, 2, 4, 8, 0};

constexpr std::string_view DatatypeName(Datatype datatype) {
  return kDatatypeNames[static_cast<size_t>(datatype)];
}
constexpr size_t DatatypeBytes(Datatype datatype) {
  return kDatatypeBytes[static_cast<size_t>(datatype)];
}
constexpr std::optional<Datatype> ParseDatatype(std::string_view name) {
  for (size_t i = 0; i < kDatatypeNames.size(); ++i) {
    if (kDatatypeNames[i] == name) return static_cast<Datatype>(i);
  }
  return std::nullopt;
}

inline constexpr size_t kTensorDimsMax = 8;

// A shape of at most kTensorDimsMax dimensions. A codec refuses more, and negative ones, before it
// makes one.
struct Shape {
  std::array<int64_t, kTensorDimsMax> dims{};
  size_t dim_count = 0;

  std::span<const int64_t> values() const { return {dims.data(), dim_count}; }
};

// A tensor as the client sent it: elements little-endian, row-major, not necessarily aligned.
struct InputTensor {
  std::string_view name;
  Datatype datatype = Datatype::kInt64;
  Shape shape;
  std::span<const std::byte> bytes;
};

// A tensor of the answer. PlanRequest (request_plan.h) fills in all but `data`; then `data` is
// pointed at byte_count bytes (aligned to 4), and the lookup writes straight there.
struct OutputTensor {
  std::string_view name;
  Datatype datatype = Datatype::kFp32;
  Shape shape;
  size_t byte_count = 0;
  std::byte* data = nullptr;
};

// What is asked of a model, whatever it came by: views of memory that lives until the answer is
// complete.
struct TensorRequest {
  std::vector<InputTensor> inputs;
  std::vector<std::string_view> output_names;  // empty = every output but the statuses
};

// Tensors that an idle connection or call keeps room for, about 30 KiB.
inline constexpr size_t kTensorsKeptMax = 64;

// Empties a list that is used again for the next request. Its memory is kept, unless an odd request
// made it large: thousands of idle connections would hold that for ever.
template <typename T>
void ClearTensorList(std::vector<T>* list) {
  list->clear();
  if (list->capacity() > kTensorsKeptMax) std::vector<T>().swap(*list);
}

}  // namespace hps
