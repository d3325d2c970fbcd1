// The header of NumPy's .npy files, read from files that may be hostile, and written.
//
// Source: the documentation of numpy.lib.format; versions 1.0, 2.0 and 3.0 are read, 1.0 written.
// Nothing is allocated before the length that asks for it has been checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "import/formats/file.h"

namespace hps {

inline constexpr char kNpyKeyFile[] = "keys.npy";
inline constexpr char kNpyRowFile[] = "rows.npy";

// Every header that we write is this long, so that it can be rewritten when the rows are counted.
inline constexpr size_t kNpyWrittenHeaderBytes = 128;

// More dimensions than any array of ours has are refused while they are read.
inline constexpr size_t kNpyRankMax = 8;

struct NpyHeader {
  std::string descr;  // "<f4"; empty for a structured type
  bool fortran_order = false;
  std::vector<uint64_t> shape;
  uint64_t data_offset = 0;
};

// Errors: INVALID_ARGUMENT with file, expected and found; DATA_LOSS.
absl::StatusOr<NpyHeader> ReadNpyHeader(const File& file);

// The dictionary that a header holds, without its preamble; data_offset stays 0.
// Errors: INVALID_ARGUMENT, which says at which byte of `text` what was expected.
absl::StatusOr<NpyHeader> ParseNpyDictionary(std::string_view text);

// Whether the file holds, in C order, exactly the bytes that its shape asks for.
// Errors: INVALID_ARGUMENT with file, expected and found.
absl::Status ValidateNpyData(const File& file, const NpyHeader& header, size_t element_bytes);

// "[3, 4]".
std::string ShapeText(std::span<const uint64_t> shape);

// `descr` as in "<f4"; `shape` has one or two numbers. kNpyWrittenHeaderBytes bytes.
std::string FormatNpyHeader(std::string_view descr, std::span<const uint64_t> shape);

}  // namespace hps
