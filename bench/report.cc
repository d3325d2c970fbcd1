#include "bench/report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench_commit.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {
namespace {

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::string Number(double value) {
  std::array<char, 32> text{};
  const double magnitude = value < 0 ? -value : value;
  const char* format = magnitude >= 1e6 ? "%.3e" : magnitude >= 100 ? "%.0f" : "%.3f";
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// A count is a whole number.
std::string CountText(double value) {
  std::array<char, 32> text{};
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  std::snprintf(text.data(), text.size(), is_whole ? "%.0f" : "%.4g", value);
  return text.data();
}

std::string Number(const std::optional<double>& value) { return value ? Number(*value) : "-"; }

nlohmann::ordered_json ResultJson(const Result& result) {
  nlohmann::ordered_json json;
  json["name"] = result.name;
  json["params"] = result.params;
  json["unit"] = result.unit;
  if (!result.skipped.empty()) json["skipped"] = result.skipped;
  if (result.skipped.empty()) json["figure"] = result.figure;
  if (result.bound) json["bound"] = *result.bound;
  if (result.ratio) json["ratio"] = *result.ratio;
  if (!result.target.empty()) json["target"] = result.target;
  if (result.p50) json["p50"] = *result.p50;
  if (result.p99) json["p99"] = *result.p99;
  if (result.runs > 0) json["runs"] = result.runs;
  for (const auto& [name, value] : result.measured) json["measured"][name] = value;
  for (const auto& point : result.latency_points) json["latency_us"].push_back(point);
  return json;
}

std::string Label(const Result& result) {
  std::string label = result.name;
  for (const auto& [name, value] : result.params) label += " " + name + "=" + value;
  return label;
}

std::string TargetText(const Result& result) {
  if (!result.skipped.empty()) return "not measured: " + result.skipped;
  const std::optional<bool> met = MeetsTarget(result);
  if (!met) return result.target;
  return result.target + (*met ? " ok" : " missed");
}

using Row = std::array<std::string, 8>;

// What else was counted, in lines of its own below the table's.
std::string MeasuredLine(const Result& result) {
  std::string line;
  for (const auto& [name, value] : result.measured)
    line += (line.empty() ? "    " : ", ") + name + " " + CountText(value);
  return line.empty() ? "" : line + "\n";
}

// `below` has what comes after each row.
std::string AlignedLines(const std::vector<Row>& rows, const std::vector<std::string>& below) {
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t at = 0; at < rows.size(); ++at) {
    const Row& row = rows[at];
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      const bool is_number = i >= 2 && i <= 6;
      line += (i > 0 ? "  " : "") + (is_number ? padding + row[i] : row[i] + padding);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n" + below[at];
  }
  return text;
}

}  // namespace

Machine ThisMachine(int device) {
  std::string gpu;
  if (device >= 0) gpu = BuiltInDeviceCacheFactory().DeviceName(device).value_or("");
  return {.cpu = CpuName(), .gpu = std::move(gpu), .commit = kBenchCommit, .date = DateNow()};
}

std::optional<bool> MeetsTarget(const Result& result) {
  const std::string_view target = result.target;
  if (target.size() < 4 || (target.substr(0, 3) != ">= " && target.substr(0, 3) != "<= "))
    return std::nullopt;
  double limit = 0;
  const char* end = target.data() + target.size();
  const auto parsed = std::from_chars(target.data() + 3, end, limit);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (!result.skipped.empty() || (result.bound && !result.ratio)) return std::nullopt;
  const double judged = result.ratio.value_or(result.figure);
  return target[0] == '>' ? judged >= limit : judged <= limit;
}

std::string ReportJson(std::string_view scenario, const Machine& machine,
                       std::span<const Result> results) {
  nlohmann::ordered_json json;
  json["scenario"] = scenario;
  json["machine"]["cpu"] = machine.cpu;
  if (!machine.gpu.empty()) json["machine"]["gpu"] = machine.gpu;
  json["machine"]["commit"] = machine.commit;
  json["machine"]["date"] = machine.date;
  json["results"] = nlohmann::ordered_json::array();
  for (const Result& result : results) json["results"].push_back(ResultJson(result));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ReportText(std::string_view scenario, const Machine& machine,
                       std::span<const Result> results) {
  std::vector<Row> rows = {
      {"result", "unit", "figure", "bound", "ratio", "p50 us", "p99 us", "target"}};
  std::vector<std::string> below = {""};
  for (const Result& result : results) {
    rows.push_back({Label(result), result.unit,
                    result.skipped.empty() ? Number(result.figure) : "-", Number(result.bound),
                    Number(result.ratio), Number(result.p50), Number(result.p99),
                    TargetText(result)});
    below.push_back(MeasuredLine(result));
  }
  std::string head = "bench " + std::string(scenario) + ", " + machine.cpu;
  if (!machine.gpu.empty()) head += ", " + machine.gpu;
  return head + ", " + machine.commit + ", " + machine.date + "\n" + AlignedLines(rows, below);
}

Result MakeResult(std::string name, std::string unit, double figure, std::optional<double> bound) {
  Result result;
  result.name = std::move(name);
  result.unit = std::move(unit);
  result.figure = figure;
  result.bound = bound;
  if (bound && *bound != 0) result.ratio = figure / *bound;
  return result;
}

Result SkippedResult(std::string name, std::string unit, std::string reason) {
  Result result;
  result.name = std::move(name);
  result.unit = std::move(unit);
  result.skipped = std::move(reason);
  return result;
}

}  // namespace hps::bench
