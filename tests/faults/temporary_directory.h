// A directory that exists as long as its object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/macros.h"

namespace hps {

// Memory where there is such a place: kill -9 loses nothing that the system has taken, and damage
// is done by the test itself, so no disk is needed.
inline std::filesystem::path FastestPlace() {
  std::error_code error;
  const std::filesystem::path memory = "/dev/shm";
  if (std::filesystem::is_directory(memory, error)) return memory;
  return std::filesystem::temp_directory_path();
}

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::filesystem::path& in = FastestPlace()) {
    std::string name = (in / "hps_test_XXXXXX").string();
    HPS_CHECK(mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  const std::string& root() const { return root_; }
  // "" = the directory itself.
  std::string path(const std::string& name) const {
    return name.empty() ? root_ : root_ + "/" + name;
  }

 private:
  std::string root_;
};

}  // namespace hps
