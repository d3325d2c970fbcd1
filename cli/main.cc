// hps, the command. Exit status: 0 done, 1 it could not be done, 2 wrong usage or configuration.
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "cli/arguments.h"
#include "cli/command_config.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/program.h"

namespace hps::cli {

namespace {

template <typename Arguments>
absl::StatusOr<Config> CommandConfig(const Arguments& arguments) {
  return ConfigOfCommand(arguments.store);
}
absl::StatusOr<Config> CommandConfig(const ServeArguments& arguments) {
  return ConfigOfServer(arguments);
}

absl::Status Run(const ImportArguments& arguments, const Config& config, Output& output) {
  return RunImport(arguments, config, output);
}
absl::Status Run(const LookupArguments& arguments, const Config& config, Output& output) {
  return RunLookup(arguments, config, output);
}
absl::Status Run(const InspectArguments& arguments, const Config& config, Output& output) {
  return RunInspect(arguments, config, output);
}
absl::Status Run(const VerifyArguments& arguments, const Config& config, Output& output) {
  return RunVerify(arguments, config, output);
}
absl::Status Run(const ExportArguments& arguments, const Config& config, Output& output) {
  return RunExport(arguments, config, output);
}
absl::Status Run(const DropArguments& arguments, const Config& config, Output& output) {
  return RunDrop(arguments, config, output);
}
absl::Status Run(const ApplyArguments& arguments, const Config& config, Output& output) {
  return RunApply(arguments, config, output);
}
absl::Status Run(const ParkedArguments& arguments, const Config& config, Output& output) {
  return RunParked(arguments, config, output);
}

absl::Status Run(const ServeArguments& arguments, const Config& config, Output& output) {
  return RunServe(arguments, config, output);
}

// Whether --json was asked for on a command line that could not be understood.
bool AsksForJson(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

absl::Status Run(const GenerateArguments& arguments, Output& output) {
  return RunGenerate(arguments, output);
}
absl::Status Run(const SplitOnnxArguments& arguments, Output& output) {
  return RunSplitOnnx(arguments, output);
}
absl::Status Run(const PublishArguments& arguments, Output& output) {
  return RunPublish(arguments, output);
}
absl::Status Run(const RefreshArguments& arguments, Output& output) {
  return RunRefresh(arguments, output);
}
absl::Status Run(const SnapshotArguments& arguments, Output& output) {
  return RunSnapshot(arguments, output);
}
absl::Status Run(const TopArguments& arguments, Output& output) {
  return RunTop(arguments, output);
}
absl::Status Run(const ConvertConfigArguments& arguments, Output& output) {
  return RunConvertConfig(arguments, output);
}
absl::Status Run(const BenchArguments& arguments, Output&) { return RunBench(arguments); }

template <typename Arguments>
int RunCommand(const Arguments& arguments, Output& output) {
  if constexpr (std::is_same_v<Arguments, ApplyArguments>) {
    if (!arguments.server.url.empty())
      return ExitStatusOf(output, RunApply(arguments, std::nullopt, output));
  }
  if constexpr (requires { arguments.store; }) {
    const absl::StatusOr<Config> config = CommandConfig(arguments);
    if (!config.ok()) {
      output.Finish(config.status()).IgnoreError();
      return kWrongUsage;
    }
    return ExitStatusOf(output, Run(arguments, *config, output));
  } else {
    return ExitStatusOf(output, Run(arguments, output));
  }
}

int Main(int argc, const char* const* argv) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  Output output(line.ok() ? line->json && line->text.empty() : AsksForJson(argc, argv));
  if (!line.ok()) {
    output.Finish(line.status()).IgnoreError();
    return kWrongUsage;
  }
  if (!line->text.empty()) {
    output.Print(line->text);
    return ExitStatusOf(output, absl::OkStatus());
  }
  return WithoutExceptions(output, [&] {
    return std::visit([&](const auto& arguments) { return RunCommand(arguments, output); },
                      line->command);
  });
}

}  // namespace
}  // namespace hps::cli

int main(int argc, char** argv) {
  int exit_status = 0;
  if (hps::cli::PrepareProgram(argc, argv, &exit_status)) return exit_status;
  return hps::cli::Main(argc, argv);
}
