// Reads the JSON object that ReportJson writes: for its page, and for what other programs measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report.h"

namespace hps::bench {

struct Report {
  std::string scenario;
  Machine machine;
  std::vector<Result> results;
};

// What is missing stays empty, but a result has a name, and a figure or a reason for none.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Report> ReadReport(std::string_view json);

}  // namespace hps::bench
