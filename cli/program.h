// What the programs `hps` and `hps-bench` have in common: how they start and how they end.
#pragma once

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "cli/output.h"

namespace hps::cli {

// Exit statuses.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// Prepares the process; first in main. True if the process only tries a network for its parent
// (inference/network_check.h) and has done so: `*exit_status` is what main returns.
bool PrepareProgram(int argc, const char* const* argv, int* exit_status);

// The exit status of a command that ended so; prints its error.
inline int ExitStatusOf(Output& output, const absl::Status& status) {
  return output.Finish(status).ok() ? kDone : kFailed;
}

// What `program` returns. The library throws nothing; exceptions of the standard library for want
// of memory end here.
template <typename Program>
int WithoutExceptions(Output& output, Program program) {
  try {
    return program();
  } catch (const std::bad_alloc&) {
    return ExitStatusOf(output, absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& error) {
    return ExitStatusOf(output, absl::InternalError(error.what()));
  }
}

}  // namespace hps::cli
