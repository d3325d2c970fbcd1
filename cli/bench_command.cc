// hps bench: becomes the program hps-bench, which has the benchmarks and is not installed.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/read_file.h"

namespace hps::cli {

absl::Status RunCommand(const BenchArguments& arguments, Output& /*output*/) {
  const std::string name = "hps-bench";
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.words.begin(), arguments.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!self.empty()) {
    const std::string beside = self.parent_path() / name;
    execv(beside.c_str(), argv.data());
    const int error_number = errno;
    if (access(beside.c_str(), F_OK) == 0) return FileError(beside, error_number, "started");
  }
  execvp(name.c_str(), argv.data());
  // Directories of the PATH that the user may not search, or that are none, are errors of execvp
  // too, so they do not tell whether there is a program.
  if (errno != ENOENT && errno != EACCES && errno != ENOTDIR)
    return FileError(name, errno, "started");
  return absl::NotFoundError(absl::StrCat(
      "bench: there is no ", name, " beside ", self.empty() ? "hps" : self.string(),
      " or on the PATH; `make build` in the source tree of hps builds it as build/cpu/bin/", name));
}

}  // namespace hps::cli
