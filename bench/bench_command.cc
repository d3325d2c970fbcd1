#include "bench/bench_command.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/heartbeat.h"
#include "bench/report.h"
#include "bench/scenario_list.h"
#include "cli/command_parser.h"
#include "cli/option_helpers.h"
#include "cli/progress.h"
#include "import/formats/result_file.h"

namespace hps::bench {
namespace {

// Rare enough to disturb no figure.
constexpr auto kBeat = std::chrono::seconds(1);

absl::StatusOr<std::vector<Result>> Measure(const BenchArguments& arguments,
                                            const NamedScenario& scenario, int device) {
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
  cli::ProgressMeter meter("bench " + arguments.scenario);
  const Heartbeat heartbeat(
      kBeat, [show = meter.function()] { show({.step = "measuring", .done = 0, .total = 0}); });
  absl::StatusOr<std::vector<Result>> results = scenario.run({.directory = directory,
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

void AddOptions(CLI::App& command, BenchArguments& arguments) {
  std::string names;
  for (const NamedScenario& scenario : Scenarios())
    names += (names.empty() ? "" : " ") + std::string(scenario.name);
  const auto check = [names](const std::string& name) {
    return FindScenario(name) != nullptr
               ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrCat(
                     "'", name, "' is not a scenario of this build; there are: ", names));
  };
  cli::AddText(command, "scenario SCENARIO", check, arguments.scenario, names)->required();
  cli::AddPath(command, "--out F.json", arguments.out, "Also write the JSON to this file");
  cli::AddPath(command, "--directory DIR", arguments.directory,
               "Scratch directory on the disk to measure");
  command.add_flag("--quick", arguments.quick,
                   "Small sizes: shows that the scenario works; the figures have no meaning");
  cli::AddDevice(command, arguments.device, "GPU to measure; -1 = none");
  command.add_option("--scale", arguments.scale, "dlrm: rows of large tables, as a share")
      ->check(CLI::Range(0.0001, 1.0))
      ->capture_default_str();
  command.add_flag("--full", arguments.full,
                   "dlrm: every case, over 10 minutes; refresh: a cache of 10 GB; session "
                   "with --device: 32 GB in level 2");
  command.add_option("--only", arguments.only, "dlrm, ctr: cases with this in their name")
      ->type_name("TEXT");
  command.add_flag("--json", arguments.json, "Print one JSON object instead of text");
  command.footer("Example:\n  hps bench l2\n  hps bench session --out session.json");
}

}  // namespace

absl::StatusOr<BenchArguments> ParseBenchArguments(std::vector<std::string> words) {
  BenchArguments arguments;
  // As the command `bench` of `hps`, so that help and errors are about what the user typed.
  CLI::App hps("", "hps");
  AddOptions(*hps.add_subcommand("bench", "Measure a figure beside its bound, in one run"),
             arguments);
  words.insert(words.begin(), "bench");
  HPS_ASSIGN_OR_RETURN(arguments.text, cli::ParseWords(hps, words));
  return arguments;
}

absl::Status RunBench(const BenchArguments& arguments, cli::Output& output) {
  const NamedScenario* scenario = FindScenario(arguments.scenario);
  if (scenario == nullptr)
    return absl::NotFoundError(absl::StrCat("no scenario '", arguments.scenario, "'"));
  if (!arguments.out.empty()) {
    if (absl::Status status = CheckResultFile(arguments.out); !status.ok()) return status;
  }
  const int device = scenario->needs_device ? std::max(arguments.device, 0) : arguments.device;
  const absl::StatusOr<std::vector<Result>> results = Measure(arguments, *scenario, device);
  if (!results.ok()) return results.status();
  const Machine machine = ThisMachine(device);
  const std::string object = ReportJson(scenario->name, machine, *results);
  // The file first: the result is printed only when it has been written.
  if (!arguments.out.empty()) {
    if (absl::Status status = WriteResultFile(arguments.out, object); !status.ok()) return status;
  }
  output.Print(output.is_json() ? object : ReportText(scenario->name, machine, *results));
  return absl::OkStatus();
}

}  // namespace hps::bench
