// A directory for a test; it is removed with its content at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/macros.h"

namespace hps {

class TestDirectory {
 public:
  TestDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "hps-test-XXXXXX").string();
    HPS_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name = "") const { return path_ + "/" + name; }

  // Creates the directories of the path, too. Returns the path.
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

  // The names of the directory's entries, sorted.
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

}  // namespace hps
