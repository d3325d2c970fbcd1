// Reads the header of safetensors files, which are untrusted.
//
// Layout: a 64-bit little-endian length; a JSON object of that length; the bytes of the tensors
// without holes. The JSON gives each tensor "dtype", "shape" and "data_offsets" ([begin, end)
// within the tensors' bytes). It is parsed as a stream of events with limited depth, so the memory
// is limited by the number of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"

namespace hps {

inline constexpr size_t kSafetensorsRankMax = 8;
inline constexpr size_t kSafetensorsTensorsMax = size_t{1} << 20;

struct Tensor {
  std::string name;
  std::string dtype;  // as written: "F32", "I64", ...
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // offset from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<Tensor> tensors;  // in the order of the file's header
  uint64_t data_offset = 0;     // offset of the tensors' bytes in the file

  // Returns null if there is no tensor of this name.
  const Tensor* Find(std::string_view name) const;
};

// Reads the header and validates every tensor: its offsets lie inside the file, the tensors neither
// overlap nor leave holes, and each is as long as its shape and dtype require. Errors:
// INVALID_ARGUMENT with file, expected and found; DATA_LOSS.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const File& file);

// Parses the JSON without validating offsets. Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<Tensor>> ParseSafetensorsJson(std::string_view json);

}  // namespace hps
