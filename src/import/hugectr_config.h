// Converts the configuration of HugeCTR's parameter server (ps.json) to one of hps.
//
// docs/from_hugectr.md has the table of settings. The measure is the parser of HugeCTR 4.3
// to 24.06. A setting whose loss has an effect, and a name unknown to HugeCTR, is a warning, not an
// error. Numbers and booleans may be strings, as in HugeCTR's own examples; comments are allowed.
// The output never contains passwords.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hps {

struct ConvertedConfig {
  std::string toml;  // LoadConfig takes it; includes `imports` as comments
  // The shell commands that import the tables, one for each model.
  std::vector<std::string> imports;
  // The settings that have an equivalent, "models[0].gpucacheper"; those whose loss has an effect,
  // with a sentence, "models[0].dense_file: ..."; those that are not needed.
  std::vector<std::string> converted{};
  std::vector<std::string> warnings{};
  std::vector<std::string> not_needed{};
};

// Maximum size of the file.
inline constexpr size_t kHugeCtrConfigBytesMax = size_t{1} << 20;

// `config_file`: where the caller will write `toml`, for `imports` to name its store; empty = they
// import into the directory "store". Errors: INVALID_ARGUMENT, with the place in the JSON (invalid
// JSON, no models, a value of the wrong type, a name or address that hps refuses, lists of
// different lengths).
absl::StatusOr<ConvertedConfig> ConvertHugeCtrConfig(std::string_view json,
                                                     const std::string& config_file = "");

}  // namespace hps
