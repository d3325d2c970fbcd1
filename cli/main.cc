// hps, the command. Exit status: 0 done, 1 it could not be done, 2 wrong usage or configuration.
#include <optional>
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

template <typename Arguments>
int Run(const Arguments& arguments, Output& output) {
  if constexpr (std::is_same_v<Arguments, ApplyArguments>) {
    if (!arguments.server.url.empty())
      return ExitStatusOf(output, RunCommand(arguments, std::nullopt, output));
  }
  if constexpr (requires { arguments.store; }) {
    const absl::StatusOr<Config> config = CommandConfig(arguments);
    if (!config.ok()) {
      output.Finish(config.status()).IgnoreError();
      return kWrongUsage;
    }
    return ExitStatusOf(output, RunCommand(arguments, *config, output));
  } else {
    return ExitStatusOf(output, RunCommand(arguments, output));
  }
}

int Main(int argc, const char* const* argv) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  return RunLine(argc, argv, line, [&](Output& output) {
    return std::visit([&](const auto& arguments) { return Run(arguments, output); }, line->command);
  });
}

}  // namespace
}  // namespace hps::cli

int main(int argc, char** argv) {
  const std::optional<int> ended = hps::cli::PrepareProgram(argc, argv);
  return ended.has_value() ? *ended : hps::cli::Main(argc, argv);
}
