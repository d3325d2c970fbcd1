// A directory that a test fills and that goes away with it, and the bytes of files in our formats,
// put together without the code under test.
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

namespace hps {

class TestDirectory {
 public:
  TestDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "hps-import-XXXXXX").string();
    HPS_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string Path(const std::string& name = "") const { return path_ + "/" + name; }

  // Makes the directories on the way. Returns the path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = Path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    HPS_CHECK(file.good());
    return path.string();
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    HPS_CHECK(file.good());
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }

  bool Has(const std::string& name) const { return std::filesystem::exists(Path(name)); }

  // Names of what lies in the directory, sorted.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

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
