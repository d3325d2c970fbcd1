// The header of safetensors files, read from files that may be hostile.
//
// Layout: a 64-bit little-endian length, a JSON object of that length that names the tensors (each
// with "dtype", "shape" and "data_offsets" [begin, end) into what follows), the tensors' bytes
// without holes. The JSON is read as a stream of events with a bounded depth: what is kept is
// bounded by the number of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "import/formats/file.h"

namespace hps {

inline constexpr size_t kSafetensorsRankMax = 8;
inline constexpr size_t kSafetensorsTensorsMax = size_t{1} << 20;

struct Tensor {
  std::string name;
  std::string dtype;  // as written: "F32", "I64", ...
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // bytes from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<Tensor> tensors;  // in the order of the file's header
  uint64_t data_offset = 0;     // of the tensors' bytes in the file

  // Null for an unknown name.
  const Tensor* Find(std::string_view name) const;
};

// Validates every tensor: offsets inside the file, neither overlapping nor with holes between them,
// and as long as shape and dtype ask for.
// Errors: INVALID_ARGUMENT with file, expected and found; DATA_LOSS.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const File& file);

// The JSON alone, without validating offsets. Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<Tensor>> ParseSafetensorsJson(std::string_view json);

}  // namespace hps
