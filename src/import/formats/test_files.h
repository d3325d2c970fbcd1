// Builds the bytes of table files without the code under test.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/macros.h"
#include "testing/test_directory.h"

namespace hps {

// The little-endian bytes of numbers.
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(AsText(std::as_bytes(std::span(values))));
}

inline std::string NpyBytes(const std::string& descr, const std::string& shape,
                            const std::string& data, const std::string& order = "False") {
  std::string text =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  const auto length = static_cast<uint16_t>(text.size());
  std::string bytes("\x93NUMPY\x01\x00", 8);
  return bytes + BytesOf<uint16_t>({length}) + text + data;
}

inline std::string SafetensorsBytes(const std::string& json, const std::string& data) {
  return BytesOf<uint64_t>({json.size()}) + json + data;
}

inline std::string TensorJson(const std::string& name, const std::string& dtype,
                              const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

}  // namespace hps
