// What the programs `hps` and `hps-bench` have in common: how they start and how they end.
#pragma once

#include <exception>
#include <new>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/output.h"

namespace hps::cli {

// Exit statuses.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// Prepares the process; first in main. An exit status: the process was started only to try a
// network for its parent (inference/network_check.h), and has done so.
std::optional<int> PrepareProgram(int argc, const char* const* argv);

// The exit status of a command that ended so; prints its error.
inline int ExitStatusOf(Output& output, const absl::Status& status) {
  return output.Finish(status).ok() ? kDone : kFailed;
}

// Whether --json is on a command line, also on one that could not be understood.
bool AsksForJson(int argc, const char* const* argv);

// The exit status of a program with this command line. `line` is what its parser made of it: a
// value with `text`, all that is to be printed unless it is empty, and `json`; or an error.
// run(output) executes the command and returns the exit status. The library throws nothing;
// exceptions of the standard library for want of memory end here.
template <typename Line, typename Run>
int RunLine(int argc, const char* const* argv, const absl::StatusOr<Line>& line, Run run) {
  Output output(line.ok() ? line->json && line->text.empty() : AsksForJson(argc, argv));
  if (!line.ok()) {
    output.Finish(line.status()).IgnoreError();
    return kWrongUsage;
  }
  if (!line->text.empty()) {
    output.Print(line->text);
    return ExitStatusOf(output, absl::OkStatus());
  }
  try {
    return run(output);
  } catch (const std::bad_alloc&) {
    return ExitStatusOf(output, absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& error) {
    return ExitStatusOf(output, absl::InternalError(error.what()));
  }
}

}  // namespace hps::cli
