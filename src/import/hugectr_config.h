// The configuration of HugeCTR's parameter server (ps.json) as one of hps.
//
// docs/from_hugectr.md has the table of settings. A setting that hps has no equivalent for becomes
// a warning, never an error, and so does a name that HugeCTR does not know. Numbers and booleans
// may be strings, as in HugeCTR's own examples; comments are allowed. Passwords are never repeated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hps {

struct ConvertedConfig {
  std::string toml;                   // with the commands that import the tables, as comments
  std::vector<std::string> warnings;  // one sentence each, "models[0].gpucacheper: ..."
};

// Bytes of the largest file that is read.
inline constexpr size_t kHugeCtrConfigBytesMax = size_t{1} << 20;

// Errors: INVALID_ARGUMENT, with the place in the JSON: no JSON, no models, a value of another type
// than its setting has, a name that hps refuses, lists of different lengths.
absl::StatusOr<ConvertedConfig> ConvertHugeCtrConfig(std::string_view json);

}  // namespace hps
