// hps_bench SCENARIO [--json] [--quick] [--out FILE] [--directory D]: runs one benchmark scenario.
//
// Exit status: 0 when it ran (a missed target is a result), 1 when it failed, 2 for wrong usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bench/report.h"
#include "bench/scenario_list.h"

namespace hps::bench {
namespace {

int RunScenario(const NamedScenario& scenario, const Options& options, bool json,
                const std::string& out) {
  const absl::StatusOr<std::vector<Result>> results = scenario.run(options);
  if (!results.ok()) {
    std::cerr << "hps_bench: " << results.status().ToString() << "\n";
    return 1;
  }
  const Machine machine = ThisMachine(options.device);
  const std::string object = ReportJson(scenario.name, machine, *results);
  std::cout << (json ? object : ReportText(scenario.name, machine, *results)) << std::flush;
  if (out.empty()) return 0;
  std::ofstream file(out, std::ios::trunc);
  file << object << std::flush;
  if (file) return 0;
  std::cerr << "hps_bench: can't write " << out << "\n";
  return 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Runs one benchmark scenario and prints figures beside their bounds.");
  std::string name, out;
  bool json = false;
  Options options;
  options.directory = (std::filesystem::temp_directory_path() / "hps_bench").string();
  app.add_option("SCENARIO", name)->required();
  app.add_flag("--json", json, "Print the JSON object instead of the table");
  app.add_flag("--quick", options.quick, "Small sizes: shows that it works, measures nothing");
  app.add_option("--out", out, "Also write the JSON object to this file");
  app.add_option("--directory", options.directory, "Scratch on the disk to measure");
  app.add_option("--device", options.device, "The GPU to measure; -1 = none");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const NamedScenario* scenario = FindScenario(name);
  if (scenario != nullptr) {
    if (scenario->needs_device) options.device = std::max(options.device, 0);
    return RunScenario(*scenario, options, json, out);
  }
  std::cerr << "hps_bench: no scenario \"" << name << "\"; there are:";
  for (const NamedScenario& known : Scenarios()) std::cerr << " " << known.name;
  std::cerr << "\n";
  return 2;
}

}  // namespace
}  // namespace hps::bench

int main(int argc, char** argv) { return hps::bench::Main(argc, argv); }
