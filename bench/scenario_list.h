// The scenarios that `hps bench SCENARIO` knows.
#pragma once

#include <span>
#include <string_view>

#include "bench/scenario.h"

namespace hps::bench {

struct NamedScenario {
  std::string_view name;
  ScenarioFunction run;
  bool takes_device = false;  // whether Options::device makes a difference
  bool needs_device = false;  // -1 becomes 0
  bool has_cases = false;     // whether Options::scale, full and only make a difference
};

// In the order in which they are shown.
std::span<const NamedScenario> Scenarios();

// Null for an unknown name.
const NamedScenario* FindScenario(std::string_view name);

}  // namespace hps::bench
