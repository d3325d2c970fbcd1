// hps, the command. Exit status: 0 done, 1 it could not be done, 2 wrong usage or configuration.
#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "hps/log.h"

namespace hps::cli {

namespace {

// A store of many tables has more files open than the usual soft limit allows; the hard limit is
// the administrator's word. A refusal only leaves things as they are.
void AllowManyOpenFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &files));
}

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

absl::StatusOr<Config> StoreConfigOf(const StoreArguments& arguments) {
  if (!arguments.config.empty()) return LoadConfig(arguments.config);
  Config config;
  config.store.path = arguments.store;
  config.origin["store.path"] = "--store";
  return config;
}

// The configuration of a command that looks at a store once: no level 2, since one call would only
// fill it. Errors: those of LoadConfig.
template <typename Arguments>
absl::StatusOr<Config> CommandConfig(const Arguments& arguments) {
  absl::StatusOr<Config> config = StoreConfigOf(arguments.store);
  if (config.ok()) config->l2.kind = L2Kind::kNone;
  return config;
}

// A server has all levels, and addresses of its command line. Errors: those of ValidateConfig too.
absl::StatusOr<Config> CommandConfig(const ServeArguments& arguments) {
  absl::StatusOr<Config> config = StoreConfigOf(arguments.store);
  if (!config.ok()) return config;
  const auto replace = [&](const std::optional<std::string>& given, const std::string& name,
                           std::string& setting) {
    if (!given.has_value()) return;
    setting = *given;
    config->origin["server." + name] = "--" + name;
  };
  replace(arguments.http, "http", config->server.http);
  replace(arguments.grpc, "grpc", config->server.grpc);
  replace(arguments.metrics, "metrics", config->server.metrics);
  if (absl::Status valid = ValidateConfig(*config); !valid.ok()) return valid;
  return config;
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

template <typename Arguments>
int RunCommand(const Arguments& arguments, Output& output) {
  if constexpr (requires { arguments.store; }) {
    const absl::StatusOr<Config> config = CommandConfig(arguments);
    if (!config.ok()) {
      output.Finish(config.status()).IgnoreError();
      return kWrongUsage;
    }
    return output.Finish(Run(arguments, *config, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, GenerateArguments>) {
    return output.Finish(RunGenerate(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, TopArguments>) {
    return output.Finish(RunTop(arguments, output)).ok() ? kDone : kFailed;
  } else {
    return output.Finish(RunBench(arguments, output)).ok() ? kDone : kFailed;
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
    output.Replace(line->text);
    return output.Finish(absl::OkStatus()).ok() ? kDone : kFailed;
  }
  // The library throws nothing; what the standard library throws for want of memory ends here.
  try {
    return std::visit([&](const auto& arguments) { return RunCommand(arguments, output); },
                      line->command);
  } catch (const std::bad_alloc&) {
    return output.Finish(absl::ResourceExhaustedError("out of memory")).ok() ? kDone : kFailed;
  } catch (const std::exception& error) {
    return output.Finish(absl::InternalError(error.what())).ok() ? kDone : kFailed;
  }
}

}  // namespace
}  // namespace hps::cli

int main(int argc, char** argv) {
  // A command says in one line why it failed; the log beside it is for processes that serve.
  hps::SetLogLevel(hps::LogLevel::kOff);
  hps::cli::AllowManyOpenFiles();
  return hps::cli::Main(argc, argv);
}
