// The commands of `hps`, each a function from its arguments to what it prints.
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

absl::Status RunImport(const ImportArguments& arguments, const Config& config, Output& output);
absl::Status RunLookup(const LookupArguments& arguments, const Config& config, Output& output);
absl::Status RunInspect(const InspectArguments& arguments, const Config& config, Output& output);
absl::Status RunVerify(const VerifyArguments& arguments, const Config& config, Output& output);
absl::Status RunExport(const ExportArguments& arguments, const Config& config, Output& output);
absl::Status RunDrop(const DropArguments& arguments, const Config& config, Output& output);
absl::Status RunSplitOnnx(const SplitOnnxArguments& arguments, Output& output);
absl::Status RunGenerate(const GenerateArguments& arguments, Output& output);
absl::Status RunPublish(const PublishArguments& arguments, Output& output);
absl::Status RunServe(const ServeArguments& arguments, const Config& config, Output& output);
// `config`: none, if the change goes to a server.
absl::Status RunApply(const ApplyArguments& arguments, const std::optional<Config>& config,
                      Output& output);
absl::Status RunRefresh(const RefreshArguments& arguments, Output& output);
absl::Status RunSnapshot(const SnapshotArguments& arguments, Output& output);
absl::Status RunParked(const ParkedArguments& arguments, const Config& config, Output& output);
absl::Status RunTop(const TopArguments& arguments, Output& output);
absl::Status RunConvertConfig(const ConvertConfigArguments& arguments, Output& output);
// Does not return if hps-bench could be started.
absl::Status RunBench(const BenchArguments& arguments);

}  // namespace hps::cli
