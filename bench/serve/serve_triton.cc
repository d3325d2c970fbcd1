#include "bench/serve/serve_triton.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/report_reader.h"
#include "bench/serve/serve_world.h"

namespace hps::bench {
namespace {

constexpr char kScript[] = "tools/triton_peer/triton_peer.py";
constexpr char kVenv[] = ".venv-bench";
// Twelve times three windows of a second, each with a start of perf_analyzer.
constexpr auto kTimeout = std::chrono::seconds(240);

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace

absl::StatusOr<TritonPeer> FindTritonPeer(const std::string& program) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::absolute(program, error).parent_path();
  while (!std::filesystem::exists(directory / kScript, error)) {
    if (!directory.has_relative_path())
      return absl::NotFoundError("run it from a source tree, after tools/bootstrap.sh bench");
    directory = directory.parent_path();
  }
  if (!std::filesystem::exists(directory / kVenv / "installed.txt", error))
    return absl::NotFoundError("run tools/bootstrap.sh bench");
  return TritonPeer{.script = directory / kScript, .venv = directory / kVenv, .program = program};
}

absl::StatusOr<std::vector<Result>> RunTritonPeer(const TritonPeer& peer,
                                                  const std::string& scratch) {
  const std::string out = scratch + "/triton.json";
  const std::string log = scratch + "/triton.log";
  const std::array<const char*, 9> arguments = {
      "python3", peer.script.c_str(), "--hps", peer.program.c_str(), "--venv", peer.venv.c_str(),
      "--out",   out.c_str(),         nullptr};
  HPS_ASSIGN_OR_RETURN(const auto child, ChildProcess::Start([&](int /*output*/) {
                         const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
                         dup2(file, STDOUT_FILENO);
                         dup2(file, STDERR_FILENO);
                         execvp(arguments[0], const_cast<char* const*>(arguments.data()));
                         return EXIT_FAILURE;
                       }));
  const std::optional<int> status = child->Wait(kTimeout);
  if (!status) return absl::UnavailableError("triton_peer.py took too long");
  if (*status != EXIT_SUCCESS)
    return absl::UnavailableError(
        absl::StrCat("triton_peer.py failed: ", LastLine(ReadWhole(log))));
  HPS_ASSIGN_OR_RETURN(Report report, ReadReport(ReadWhole(out)));
  return std::move(report.results);
}

}  // namespace hps::bench
