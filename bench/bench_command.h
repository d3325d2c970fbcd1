// The command line of hps-bench, and what it runs: one benchmark scenario.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/output.h"

namespace hps::bench {

struct BenchArguments {
  // Not empty: this help text is all that is to be printed.
  std::string text;
  bool json = false;
  std::string scenario;
  std::string out;
  std::string directory;
  bool quick = false;
  int device = -1;
  double scale = 0.25;
  bool full = false;
  std::string only;
};

// `words`: argv without the program's name. Errors: INVALID_ARGUMENT for wrong usage, one sentence.
absl::StatusOr<BenchArguments> ParseBenchArguments(std::vector<std::string> words);

// Errors: those of the scenario, NOT_FOUND (its name), those of CheckResultFile.
absl::Status RunBench(const BenchArguments& arguments, cli::Output& output);

}  // namespace hps::bench
