#include "bench/scratch.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace hps::bench {

absl::Status MakeScratch(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("can't make the directory ", path));
}

void RemoveScratch(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace hps::bench
