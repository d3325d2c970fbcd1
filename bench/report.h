// What `hps bench` prints: the JSON object of one scenario, and a table for people.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bench/scenario.h"

namespace hps::bench {

struct Machine {
  std::string cpu;
  std::string gpu;  // empty without one: left out of the report
  std::string commit;
  std::string date;  // ISO 8601, UTC
};

// The machine at hand, now, and the commit that this library was built from. `device` is the GPU
// that was measured, -1 = none.
Machine ThisMachine(int device);

// Whether the result meets its target; nullopt without a target, or when it is not of the form
// ">= X" or "<= X", or when there is nothing that it could judge.
std::optional<bool> MeetsTarget(const Result& result);

// {"scenario", "machine": {...}, "results": [...]}; what does not apply is left out. Ends with a
// line feed.
std::string ReportJson(std::string_view scenario, const Machine& machine,
                       std::span<const Result> results);

// The same as lines of aligned columns, with "ok" or "missed" beside every target.
std::string ReportText(std::string_view scenario, const Machine& machine,
                       std::span<const Result> results);

// A result whose ratio is figure / bound.
Result MakeResult(std::string name, std::string unit, double figure, std::optional<double> bound);

// One that was not measured: `reason` says why, and what would have it measured.
Result SkippedResult(std::string name, std::string unit, std::string reason);

}  // namespace hps::bench
