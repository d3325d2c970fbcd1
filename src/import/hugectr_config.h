// Converts the configuration of HugeCTR's parameter server (ps.json) to one of hps.
//
// docs/from_hugectr.md has the table of settings. Settings without an equivalent in hps, and names
// unknown to HugeCTR, become warnings, not errors. Numbers and booleans may be strings, as in
// HugeCTR's own examples; comments are allowed. The output never contains passwords.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hps {

struct ConvertedConfig {
  std::string toml;                   // includes, as comments, the commands that import the tables
  std::vector<std::string> warnings;  // one sentence each, "models[0].gpucacheper: ..."
};

// Maximum size of the file.
inline constexpr size_t kHugeCtrConfigBytesMax = size_t{1} << 20;

// Errors: INVALID_ARGUMENT, with the place in the JSON (invalid JSON, no models, a value of the
// wrong type, a name that hps refuses, lists of different lengths).
absl::StatusOr<ConvertedConfig> ConvertHugeCtrConfig(std::string_view json);

}  // namespace hps
