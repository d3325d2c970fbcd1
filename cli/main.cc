// hps, the command. Exit status: 0 done, 1 it could not be done, 2 wrong usage or configuration.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "cli/arguments.h"
#include "cli/command_config.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "hps/log.h"
#include "inference/network_check.h"

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

// A file that grows beyond what the user may write (ulimit -f) is a failed write with a sentence,
// as a full disk is, and not the end of the process, which would leave half-written files behind.
void OutliveFileSizeLimits() { signal(SIGXFSZ, SIG_IGN); }

// Where stdin, stdout or stderr is closed, the next file that is opened gets its number: one of the
// store, mostly, into which the log would be written then. What takes the place here can't be read
// or written, either, so that a closed stdout is still an error.
void HoldClosedStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // The lowest number that is free, which is this one.
    static_cast<void>(open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

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

template <typename Arguments>
int RunCommand(const Arguments& arguments, Output& output) {
  if constexpr (std::is_same_v<Arguments, ApplyArguments>) {
    if (!arguments.server.url.empty())
      return output.Finish(RunApply(arguments, std::nullopt, output)).ok() ? kDone : kFailed;
  }
  if constexpr (requires { arguments.store; }) {
    const absl::StatusOr<Config> config = CommandConfig(arguments);
    if (!config.ok()) {
      output.Finish(config.status()).IgnoreError();
      return kWrongUsage;
    }
    return output.Finish(Run(arguments, *config, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, GenerateArguments>) {
    return output.Finish(RunGenerate(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, SplitOnnxArguments>) {
    return output.Finish(RunSplitOnnx(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, PublishArguments>) {
    return output.Finish(RunPublish(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, RefreshArguments>) {
    return output.Finish(RunRefresh(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, SnapshotArguments>) {
    return output.Finish(RunSnapshot(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, TopArguments>) {
    return output.Finish(RunTop(arguments, output)).ok() ? kDone : kFailed;
  } else if constexpr (std::is_same_v<Arguments, ConvertConfigArguments>) {
    return output.Finish(RunConvertConfig(arguments, output)).ok() ? kDone : kFailed;
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
    output.Print(line->text);
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
  // What this program starts to try a network (inference/network_check.h).
  if (argc == 2 && std::string_view(argv[1]) == "check-network") return hps::RunNetworkCheck();
  hps::SetNetworkCheckProgram("/proc/self/exe");
  hps::cli::HoldClosedStreams();
  // A command says in one line why it failed; the log beside it is for processes that serve.
  hps::SetLogLevel(hps::LogLevel::kOff);
  hps::cli::AllowManyOpenFiles();
  hps::cli::OutliveFileSizeLimits();
  return hps::cli::Main(argc, argv);
}
