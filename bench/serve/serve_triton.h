// Triton beside the server: rows that tools/triton_peer measures with perf_analyzer.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/scenario.h"

namespace hps::bench {

// Where the comparison is: below the source tree that this program was built in.
struct TritonPeer {
  std::string script;   // tools/triton_peer/triton_peer.py
  std::string venv;     // .venv-bench, which tools/bootstrap.sh bench makes
  std::string program;  // hps, which it lets serve
};

// Looks for it in `program`'s directory and those above. Errors: NOT_FOUND, with a sentence that
// says how to have it measured.
absl::StatusOr<TritonPeer> FindTritonPeer(const std::string& program);

// Runs it, for some minutes, with its files in `scratch`, a directory that there is.
// Errors: UNAVAILABLE when it failed or took too long: its last words; INVALID_ARGUMENT for what is
// no report.
absl::StatusOr<std::vector<Result>> RunTritonPeer(const TritonPeer& peer,
                                                  const std::string& scratch);

}  // namespace hps::bench
