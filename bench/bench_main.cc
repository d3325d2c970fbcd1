// hps_bench SCENARIO [--json] [--quick] [--out FILE] [--html FILE] [--directory D]: runs one
// benchmark scenario.
//
// Exit status: 0 when it ran (a missed target is a result), 1 when it failed, 2 for wrong usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bench/report.h"
#include "bench/report_html.h"
#include "bench/scenario_list.h"

namespace hps::bench {
namespace {

struct Outputs {
  bool json = false;
  std::string out;
  std::string html;
};

bool Write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  if (!file) std::cerr << "hps_bench: can't write " << path << "\n";
  return !file.fail();
}

int RunScenario(const NamedScenario& scenario, const Options& options, const Outputs& outputs) {
  const absl::StatusOr<std::vector<Result>> results = scenario.run(options);
  if (!results.ok()) {
    std::cerr << "hps_bench: " << results.status().ToString() << "\n";
    return 1;
  }
  const Machine machine = ThisMachine(options.device);
  const std::string object = ReportJson(scenario.name, machine, *results);
  std::cout << (outputs.json ? object : ReportText(scenario.name, machine, *results)) << std::flush;
  const std::string page =
      ReportHtml({.scenario = std::string(scenario.name), .machine = machine, .results = *results});
  return Write(outputs.out, object) && Write(outputs.html, page) ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Runs one benchmark scenario and prints figures beside their bounds.");
  std::string name;
  Outputs outputs;
  Options options;
  options.directory = (std::filesystem::temp_directory_path() / "hps_bench").string();
  app.add_option("SCENARIO", name)->required();
  app.add_flag("--json", outputs.json, "Print the JSON object instead of the table");
  app.add_flag("--quick", options.quick, "Small sizes: shows that it works, measures nothing");
  app.add_option("--out", outputs.out, "Also write the JSON object to this file");
  app.add_option("--html", outputs.html, "Also write a page with plots to this file");
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
    return RunScenario(*scenario, options, outputs);
  }
  std::cerr << "hps_bench: no scenario \"" << name << "\"; there are:";
  for (const NamedScenario& known : Scenarios()) std::cerr << " " << known.name;
  std::cerr << "\n";
  return 2;
}

}  // namespace
}  // namespace hps::bench

int main(int argc, char** argv) { return hps::bench::Main(argc, argv); }
