// hps bench: one benchmark scenario.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/report.h"
#include "bench/scenario_list.h"
#include "cli/commands.h"

namespace hps::cli {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0)
    return absl::UnavailableError(absl::StrCat(path, " can't be written"));
  return absl::OkStatus();
}

absl::Status UnknownScenario(const std::string& name) {
  std::string message = absl::StrCat("scenario '", name, "' is not in this build; there are:");
  for (const bench::NamedScenario& known : bench::Scenarios())
    absl::StrAppend(&message, " ", std::string(known.name));
  return absl::NotFoundError(message);
}

}  // namespace

absl::Status RunBench(const BenchArguments& arguments, Output& output) {
  if (arguments.device >= 0) {
    return absl::UnimplementedError(
        absl::StrCat("--device ", arguments.device, ": this build does not have support for GPUs"));
  }
  const bench::NamedScenario* scenario = bench::FindScenario(arguments.scenario);
  if (scenario == nullptr) return UnknownScenario(arguments.scenario);
  std::string directory = arguments.directory;
  if (directory.empty()) {
    std::error_code error;
    directory = (std::filesystem::temp_directory_path(error) / "hps_bench").string();
    if (error) return absl::NotFoundError("no directory for temporary files: " + error.message());
  }
  const absl::StatusOr<std::vector<bench::Result>> results =
      scenario->run({.directory = directory, .quick = arguments.quick});
  if (!results.ok()) return results.status();
  const bench::Machine machine = bench::ThisMachine();
  const std::string object = bench::ReportJson(scenario->name, machine, *results);
  output.Replace(output.is_json() ? object : bench::ReportText(scenario->name, machine, *results));
  return arguments.out.empty() ? absl::OkStatus() : WriteFile(arguments.out, object);
}

}  // namespace hps::cli
