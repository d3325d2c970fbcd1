// The header of NumPy's .npy files, read from files that may be hostile and written.
// Source: numpy.lib.format, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hps {

inline constexpr char kNpyKeyFile[] = "keys.npy";
inline constexpr char kNpyRowFile[] = "rows.npy";

// Every header that we write is this long, so that it can be rewritten when the rows are counted.
inline constexpr size_t kNpyWrittenHeaderBytes = 128;

// `descr` as in "<f4"; `shape` has one or two numbers.
std::string FormatNpyHeader(std::string_view descr, std::span<const uint64_t> shape);

}  // namespace hps
