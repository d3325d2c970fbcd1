// hps bench: one benchmark scenario.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/heartbeat.h"
#include "bench/report.h"
#include "bench/scenario_list.h"
#include "cli/commands.h"
#include "cli/progress.h"

namespace hps::cli {
namespace {

// Rare enough to disturb no figure.
constexpr auto kBeat = std::chrono::seconds(1);

absl::Status FileError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, " can't be written: ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EISDIR:
      return absl::InvalidArgumentError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

// Whether a file can be made there: a scenario runs for minutes, and its figures are not to be lost
// for a misspelt path. Touches nothing.
absl::Status CheckWritable(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return FileError(path, EISDIR);
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  const bool exists = access(path.c_str(), F_OK) == 0;
  const std::string checked = exists ? path : directory.empty() ? "." : directory.string();
  if (access(checked.c_str(), exists ? W_OK : W_OK | X_OK) == 0) return absl::OkStatus();
  return FileError(path, errno);
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return FileError(path, errno);
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  return written && closed ? absl::OkStatus() : FileError(path, errno);
}

}  // namespace

absl::Status RunBench(const BenchArguments& arguments, Output& output) {
  const bench::NamedScenario* scenario = bench::FindScenario(arguments.scenario);
  if (scenario == nullptr)
    return absl::NotFoundError(absl::StrCat("no scenario '", arguments.scenario, "'"));
  const int device = scenario->needs_device ? std::max(arguments.device, 0) : arguments.device;
  if (device >= 0 && !scenario->takes_device) {
    return absl::InvalidArgumentError(absl::StrCat("--device ", device, ": scenario '",
                                                   arguments.scenario, "' measures no device"));
  }
  if (!arguments.out.empty()) {
    if (absl::Status status = CheckWritable(arguments.out); !status.ok()) return status;
  }
  std::string directory = arguments.directory;
  if (directory.empty()) {
    std::error_code error;
    directory = (std::filesystem::temp_directory_path(error) / "hps_bench").string();
    if (error) return absl::NotFoundError("no directory for temporary files: " + error.message());
  }
  const absl::StatusOr<std::vector<bench::Result>> results = [&] {
    ProgressMeter meter("bench " + arguments.scenario);
    const bench::Heartbeat heartbeat(
        kBeat, [show = meter.function()] { show({.step = "measuring", .done = 0, .total = 0}); });
    return scenario->run({.directory = directory, .quick = arguments.quick, .device = device});
  }();
  if (!results.ok()) return results.status();
  const bench::Machine machine = bench::ThisMachine(device);
  const std::string object = bench::ReportJson(scenario->name, machine, *results);
  // The file first: what is printed as the result stands only where everything went well.
  if (!arguments.out.empty()) {
    if (absl::Status status = WriteFile(arguments.out, object); !status.ok()) return status;
  }
  output.Replace(output.is_json() ? object : bench::ReportText(scenario->name, machine, *results));
  return absl::OkStatus();
}

}  // namespace hps::cli
