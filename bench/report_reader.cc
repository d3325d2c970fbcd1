#include "bench/report_reader.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/macros.h"

namespace hps::bench {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> NumberIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string TextIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The member `name`, null where there is none.
const Json& MemberOf(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

absl::StatusOr<Result> ReadResult(const Json& object) {
  if (!object.is_object())
    return absl::InvalidArgumentError("a benchmark's report: a result is no object");
  Result result;
  result.name = TextIn(object, "name");
  result.skipped = TextIn(object, "skipped");
  const std::optional<double> figure = NumberIn(object, "figure");
  if (result.name.empty() || (!figure && result.skipped.empty())) {
    return absl::InvalidArgumentError(
        "a benchmark's report: a result '" + result.name +
        "' without a name, or with neither figure nor reason for none");
  }
  result.figure = figure.value_or(0);
  result.unit = TextIn(object, "unit");
  result.bound = NumberIn(object, "bound");
  result.ratio = NumberIn(object, "ratio");
  result.target = TextIn(object, "target");
  result.p50 = NumberIn(object, "p50");
  result.p99 = NumberIn(object, "p99");
  result.runs = static_cast<uint64_t>(NumberIn(object, "runs").value_or(0));
  for (const auto& [name, value] : MemberOf(object, "params").items()) {
    if (value.is_string()) result.params[name] = value.get<std::string>();
  }
  for (const auto& [name, value] : MemberOf(object, "measured").items()) {
    if (value.is_number()) result.measured.emplace_back(name, value.get<double>());
  }
  for (const Json& point : MemberOf(object, "latency_us")) {
    if (point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number())
      result.latency_points.emplace_back(point[0].get<double>(), point[1].get<double>());
  }
  return result;
}

}  // namespace

absl::StatusOr<Report> ReadReport(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object() || !MemberOf(object, "results").is_array())
    return absl::InvalidArgumentError("this is no report of a benchmark: it has no results");
  Report report;
  report.scenario = TextIn(object, "scenario");
  if (const Json& machine = MemberOf(object, "machine"); machine.is_object()) {
    report.machine = {.cpu = TextIn(machine, "cpu"),
                      .gpu = TextIn(machine, "gpu"),
                      .commit = TextIn(machine, "commit"),
                      .date = TextIn(machine, "date")};
  }
  for (const Json& one : MemberOf(object, "results")) {
    HPS_ASSIGN_OR_RETURN(Result result, ReadResult(one));
    report.results.push_back(std::move(result));
  }
  return report;
}

}  // namespace hps::bench
