#include "bench/scenario_list.h"

#include <vector>

namespace hps::bench {

std::span<const NamedScenario> Scenarios() {
  static const std::vector<NamedScenario> scenarios = {
      {"l2", RunL2Scenario},
      {"l3", RunL3Scenario},
      {"import", RunImportScenario},
      {"session", RunSessionScenario},
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
