// What every benchmark scenario is: a function that measures a figure and its bound in one run.
//
// A figure stands beside the bound that the same machine gave in the same run, and their ratio is
// what targets judge: absolute figures differ from machine to machine. A missed target is a
// result, not an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace hps::bench {

struct Result {
  std::string name;                           // "fetch", "insert", ...
  std::map<std::string, std::string> params;  // {"dim": "32", "threads": "2", ...}
  std::string unit;                           // of figure and bound: "keys/s", "GB/s", "bytes", "s"
  double figure = 0;
  std::optional<double> bound;
  // figure / bound where more is better, and also where less is better (the target's sign says
  // which); left out when there is no bound.
  std::optional<double> ratio;
  std::string target;         // ">= 0.85", "<= 1.3", judges `ratio` (or, without a bound, `figure`)
  std::optional<double> p50;  // of single calls, in us
  std::optional<double> p99;
  uint64_t runs = 0;
  // What else was counted: no case that was asked for, as params are, and no figure that is judged.
  std::vector<std::pair<std::string, double>> measured;
  // The distribution of the latencies: shares (0 to 1) and the latency in us that each is not
  // above.
  std::vector<std::pair<double, double>> latency_points;
  // Why this was not measured, and what would have it measured; the figure means nothing then.
  std::string skipped;
};

struct Options {
  std::string directory;  // scratch on disk, made and removed by the scenario
  bool quick = false;     // small sizes: shows that the scenario works, measures nothing of worth
  int device = -1;        // the GPU to measure; -1 = none, or the first where there has to be one
  // Of scenarios with cases: how many rows large tables have (dlrm), all cases and not the usual
  // ones (dlrm, refresh) or a large level 2 (session on a device), only those whose name has this
  // in it (dlrm, ctr on a device).
  double scale = 0.25;
  bool full = false;
  std::string only;
};

using ScenarioFunction = absl::StatusOr<std::vector<Result>> (*)(const Options& options);

absl::StatusOr<std::vector<Result>> RunL1Scenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunL2Scenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunL3Scenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunImportScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunSessionScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunDlrmScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunDenseScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunServeScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunIngestScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunFreshnessScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunRefreshScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunRedisScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunCtrScenario(const Options& options);
absl::StatusOr<std::vector<Result>> RunLoadScenario(const Options& options);

}  // namespace hps::bench
