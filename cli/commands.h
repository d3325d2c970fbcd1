// The commands of `hps`: RunCommand for the arguments of each, which prints its result.
//
// A command that works on a store gets the configuration that names it. Errors are those of the
// library, as hps/store.h documents them: exit status 1.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "hps/config.h"

namespace hps::cli {

absl::Status RunCommand(const ImportArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const LookupArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const InspectArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const VerifyArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const ExportArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const DropArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const SplitOnnxArguments& arguments, Output& output);
absl::Status RunCommand(const GenerateArguments& arguments, Output& output);
absl::Status RunCommand(const PublishArguments& arguments, Output& output);
absl::Status RunCommand(const ServeArguments& arguments, const Config& config, Output& output);
// `config`: none, if the change goes to a server.
absl::Status RunCommand(const ApplyArguments& arguments, const std::optional<Config>& config,
                        Output& output);
absl::Status RunCommand(const RefreshArguments& arguments, Output& output);
absl::Status RunCommand(const SnapshotArguments& arguments, Output& output);
absl::Status RunCommand(const ParkedArguments& arguments, const Config& config, Output& output);
absl::Status RunCommand(const TopArguments& arguments, Output& output);
absl::Status RunCommand(const ConvertConfigArguments& arguments, Output& output);
// Does not return if hps-bench could be started.
absl::Status RunCommand(const BenchArguments& arguments, Output& output);

}  // namespace hps::cli
