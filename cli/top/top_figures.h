// What `hps top` shows, from two overviews of a server (docs/overview_api.md): sums become rates,
// histograms percentiles.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace hps::cli {

// The object that `hps top --json` prints, with the members that docs/command_line.md lists, or a
// part of it. All members have the types that TopText reads.
using TopFigures = nlohmann::ordered_json;

// Errors: INVALID_ARGUMENT (not an overview, or of a later version), UNAVAILABLE (the server was
// started again in between: its sums are others).
absl::StatusOr<TopFigures> ComputeTopFigures(const std::string& before, const std::string& now);

// Lines for a terminal of that size; tables and models are cut to fit. `lines_max` 0 = all.
// REQUIRES: `figures` are of ComputeTopFigures.
std::string TopText(const TopFigures& figures, size_t columns, size_t lines_max);

}  // namespace hps::cli
