// Reads and writes the header of NumPy's .npy files. The files are untrusted: nothing is allocated
// before the length that requires it has been checked.
//
// Source: the documentation of numpy.lib.format. Reads versions 1.0, 2.0 and 3.0; writes 1.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"

namespace hps {

inline constexpr char kNpyKeyFile[] = "keys.npy";
inline constexpr char kNpyRowFile[] = "rows.npy";

// Length of every written header. It is fixed, so that the header can be rewritten once the rows
// have been counted.
inline constexpr size_t kNpyWrittenHeaderBytes = 128;

// Maximum number of dimensions. A header with more is refused while it is parsed.
inline constexpr size_t kNpyRankMax = 8;

struct NpyHeader {
  std::string descr;  // "<f4"; empty for a structured type
  bool fortran_order = false;
  std::vector<uint64_t> shape;
  uint64_t data_offset = 0;
};

// Errors: INVALID_ARGUMENT with file, expected and found; DATA_LOSS.
absl::StatusOr<NpyHeader> ReadNpyHeader(const File& file);

// Parses the dictionary of a header, without its preamble. data_offset stays 0. Errors:
// INVALID_ARGUMENT (names the byte of `text` and what was expected there).
absl::StatusOr<NpyHeader> ParseNpyDictionary(std::string_view text);

// Checks that the file holds, in C order, exactly the bytes that its shape requires. Errors:
// INVALID_ARGUMENT with file, expected and found.
absl::Status ValidateNpyData(const File& file, const NpyHeader& header, size_t element_bytes);

// Formats a shape as "[3, 4]".
std::string ShapeText(std::span<const uint64_t> shape);

// Returns a header of kNpyWrittenHeaderBytes bytes. `descr` is for example "<f4"; `shape` has one
// or two numbers.
std::string FormatNpyHeader(std::string_view descr, std::span<const uint64_t> shape);

}  // namespace hps
