// hps bench: one benchmark scenario.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/heartbeat.h"
#include "bench/report.h"
#include "bench/report_file.h"
#include "bench/scenario_list.h"
#include "cli/commands.h"
#include "cli/progress.h"

namespace hps::cli {
namespace {

// Rare enough to disturb no figure.
constexpr auto kBeat = std::chrono::seconds(1);

absl::StatusOr<std::vector<bench::Result>> Measure(const BenchArguments& arguments,
                                                   const bench::NamedScenario& scenario,
                                                   int device) {
  if (device >= 0 && !scenario.takes_device) {
    return absl::InvalidArgumentError(absl::StrCat("--device ", device, ": scenario '",
                                                   arguments.scenario, "' measures no device"));
  }
  if (!scenario.has_cases && (arguments.full || !arguments.only.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--full and --only: scenario '", arguments.scenario, "' has no cases"));
  }
  std::string directory = arguments.directory;
  if (directory.empty()) {
    std::error_code error;
    directory = (std::filesystem::temp_directory_path(error) / "hps_bench").string();
    if (error) return absl::NotFoundError("no directory for temporary files: " + error.message());
  }
  ProgressMeter meter("bench " + arguments.scenario);
  const bench::Heartbeat heartbeat(
      kBeat, [show = meter.function()] { show({.step = "measuring", .done = 0, .total = 0}); });
  absl::StatusOr<std::vector<bench::Result>> results = scenario.run({.directory = directory,
                                                                     .quick = arguments.quick,
                                                                     .device = device,
                                                                     .scale = arguments.scale,
                                                                     .full = arguments.full,
                                                                     .only = arguments.only});
  if (!results.ok()) {
    return absl::Status(
        results.status().code(),
        absl::StrCat("bench ", arguments.scenario, ": ", std::string(results.status().message())));
  }
  return results;
}

}  // namespace

absl::Status RunBench(const BenchArguments& arguments, Output& output) {
  const bench::NamedScenario* scenario = bench::FindScenario(arguments.scenario);
  if (scenario == nullptr)
    return absl::NotFoundError(absl::StrCat("no scenario '", arguments.scenario, "'"));
  if (!arguments.out.empty()) {
    if (absl::Status status = bench::CheckReportFile(arguments.out); !status.ok()) return status;
  }
  const int device = scenario->needs_device ? std::max(arguments.device, 0) : arguments.device;
  const absl::StatusOr<std::vector<bench::Result>> results = Measure(arguments, *scenario, device);
  if (!results.ok()) return results.status();
  const bench::Machine machine = bench::ThisMachine(device);
  const std::string object = bench::ReportJson(scenario->name, machine, *results);
  // The file first: the result is printed only when it has been written.
  if (!arguments.out.empty()) {
    if (absl::Status status = bench::WriteReportFile(arguments.out, object); !status.ok())
      return status;
  }
  output.Print(output.is_json() ? object : bench::ReportText(scenario->name, machine, *results));
  return absl::OkStatus();
}

}  // namespace hps::cli
