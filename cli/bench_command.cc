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
#include "bench/report_html.h"
#include "bench/report_reader.h"
#include "bench/scenario_list.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/read_file.h"

namespace hps::cli {
namespace {

// Rare enough to disturb no figure.
constexpr auto kBeat = std::chrono::seconds(1);

// Far beyond any report.
constexpr size_t kKeptBytesMax = size_t{64} << 20;

absl::StatusOr<bench::Report> Measure(const BenchArguments& arguments,
                                      const bench::NamedScenario& scenario) {
  const int device = scenario.needs_device ? std::max(arguments.device, 0) : arguments.device;
  if (device >= 0 && !scenario.takes_device) {
    return absl::InvalidArgumentError(absl::StrCat("--device ", device, ": scenario '",
                                                   arguments.scenario, "' measures no device"));
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
  absl::StatusOr<std::vector<bench::Result>> results =
      scenario.run({.directory = directory, .quick = arguments.quick, .device = device});
  if (!results.ok()) {
    return absl::Status(
        results.status().code(),
        absl::StrCat("bench ", arguments.scenario, ": ", std::string(results.status().message())));
  }
  return bench::Report{.scenario = std::string(scenario.name),
                       .machine = bench::ThisMachine(device),
                       .results = *std::move(results)};
}

// A report that `--out` wrote.
absl::StatusOr<bench::Report> ReadKept(const std::string& path, const std::string& scenario) {
  const absl::StatusOr<std::string> text = ReadFile(path, kKeptBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<bench::Report> report = bench::ReadReport(*text);
  if (!report.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::string(report.status().message())));
  }
  if (report->scenario == scenario) return report;
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is of scenario '", report->scenario, "', not of '", scenario, "'"));
}

}  // namespace

absl::Status RunBench(const BenchArguments& arguments, Output& output) {
  const bench::NamedScenario* scenario = bench::FindScenario(arguments.scenario);
  if (scenario == nullptr)
    return absl::NotFoundError(absl::StrCat("no scenario '", arguments.scenario, "'"));
  for (const std::string& path : {arguments.out, arguments.html}) {
    if (path.empty()) continue;
    if (absl::Status status = bench::CheckReportFile(path); !status.ok()) return status;
  }
  const absl::StatusOr<bench::Report> report = arguments.from.empty()
                                                   ? Measure(arguments, *scenario)
                                                   : ReadKept(arguments.from, arguments.scenario);
  if (!report.ok()) return report.status();
  const std::string object = bench::ReportJson(report->scenario, report->machine, report->results);
  // The files first: what is printed as the result stands only where everything went well.
  if (!arguments.out.empty()) {
    if (absl::Status status = bench::WriteReportFile(arguments.out, object); !status.ok())
      return status;
  }
  if (!arguments.html.empty()) {
    const std::string page = bench::ReportHtml(*report);
    if (absl::Status status = bench::WriteReportFile(arguments.html, page); !status.ok())
      return status;
  }
  output.Replace(output.is_json()
                     ? object
                     : bench::ReportText(report->scenario, report->machine, report->results));
  return absl::OkStatus();
}

}  // namespace hps::cli
