#include "bench/scenario_list.h"

#include <vector>

namespace hps::bench {

std::span<const NamedScenario> Scenarios() {
  static const std::vector<NamedScenario> scenarios = {
      {.name = "l1", .run = RunL1Scenario, .takes_device = true, .needs_device = true},
      {.name = "l2", .run = RunL2Scenario},
      {.name = "l3", .run = RunL3Scenario},
      {.name = "import", .run = RunImportScenario},
      {.name = "session", .run = RunSessionScenario, .takes_device = true, .has_cases = true},
      {.name = "dlrm", .run = RunDlrmScenario, .takes_device = true, .has_cases = true},
      {.name = "dense", .run = RunDenseScenario, .takes_device = true, .needs_device = true},
      {.name = "serve", .run = RunServeScenario},
      {.name = "ingest", .run = RunIngestScenario},
      {.name = "freshness", .run = RunFreshnessScenario},
      {.name = "refresh", .run = RunRefreshScenario, .takes_device = true, .has_cases = true},
      {.name = "redis", .run = RunRedisScenario},
      {.name = "ctr", .run = RunCtrScenario, .takes_device = true, .has_cases = true},
      {.name = "load", .run = RunLoadScenario},
  };
  return scenarios;
}

const NamedScenario* FindScenario(std::string_view name) {
  for (const NamedScenario& scenario : Scenarios()) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

}  // namespace hps::bench
