#include "bench/report_plots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/markup.h"
#include "bench/report.h"

namespace hps::bench {
namespace {

// Parameters that a line may run over, the likeliest first. Others that differ tell lines apart if
// they are words; if they are numbers they were measured, and tell nothing.
constexpr std::array<std::string_view, 12> kAxes = {
    "load", "concurrency",    "batch",   "keys",        "keys_per_table", "alpha",
    "rows", "rows_per_table", "threads", "connections", "tables",         "dim"};
constexpr size_t kPointsMin = 3;  // fewer are better read in the table
constexpr size_t kLinesMax = 12;
constexpr size_t kDistributionMarks = 6;  // points from mark to mark, of about forty

std::string Words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::optional<double> ParamNumber(const Result& result, const std::string& name) {
  const auto found = result.params.find(name);
  double number = 0;
  if (found == result.params.end() || !absl::SimpleAtod(found->second, &number))
    return std::nullopt;
  return number;
}

bool IsAxis(std::string_view name) {
  return std::find(kAxes.begin(), kAxes.end(), name) != kAxes.end();
}

// Results of one name and unit.
using Group = std::vector<const Result*>;

std::vector<Group> GroupsOf(std::span<const Result> results) {
  std::vector<Group> groups;
  for (const Result& result : results) {
    if (!result.skipped.empty()) continue;
    const auto same = [&](const Group& group) {
      return group.front()->name == result.name && group.front()->unit == result.unit;
    };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    (found == groups.end() ? groups.emplace_back() : *found).push_back(&result);
  }
  return groups;
}

// The parameter that a group's lines run over: the one with the most values. Empty for none.
std::string AxisOf(const Group& group) {
  std::string best;
  size_t most = kPointsMin - 1;
  for (const std::string_view axis : kAxes) {
    std::set<double> values;
    for (const Result* result : group) {
      const auto number = ParamNumber(*result, std::string(axis));
      if (number) values.insert(*number);
    }
    if (values.size() > most) {
      most = values.size();
      best = axis;
    }
  }
  return best;
}

// What tells a result's line from the others of its group: the parameters that differ, but `axis`.
std::string LineNameOf(const Result& result, const Group& group, const std::string& axis) {
  std::string name;
  for (const auto& [param, value] : result.params) {
    if (param == axis || (ParamNumber(result, param) && !IsAxis(param))) continue;
    const bool differs =
        std::any_of(group.begin(), group.end(), [&, &param = param, &value = value](auto* other) {
          const auto found = other->params.find(param);
          return found == other->params.end() || found->second != value;
        });
    if (!differs) continue;
    // A word says what it is; a number does not.
    const bool is_number = ParamNumber(result, param).has_value();
    absl::StrAppend(&name, name.empty() ? "" : ", ", is_number ? param + " " : "", value);
  }
  return name;
}

struct Series {
  std::string name;
  Group results;  // by their value on the axis, ascending
};

std::vector<Series> SeriesOf(const Group& group, const std::string& axis) {
  std::vector<Series> series;
  for (const Result* result : group) {
    if (!ParamNumber(*result, axis)) continue;
    const std::string name = LineNameOf(*result, group, axis);
    const auto found =
        std::find_if(series.begin(), series.end(), [&](auto& one) { return one.name == name; });
    (found == series.end() ? series.emplace_back(Series{.name = name, .results = {}}) : *found)
        .results.push_back(result);
  }
  for (Series& one : series) {
    std::stable_sort(one.results.begin(), one.results.end(), [&](auto* a, auto* b) {
      return *ParamNumber(*a, axis) < *ParamNumber(*b, axis);
    });
  }
  if (series.size() > kLinesMax) series.resize(kLinesMax);
  return series;
}

// Logarithmic where the least and the most are far apart.
Axis AxisFor(const std::vector<PlotLine>& lines, bool of_x) {
  double least = 0;
  double most = 0;
  for (const PlotLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      const double value = of_x ? x : y;
      if (!(value > 0)) return Axis::kLinear;
      least = least > 0 ? std::min(least, value) : value;
      most = std::max(most, value);
    }
  }
  constexpr double kFar = 12;
  return most > kFar * least ? Axis::kLog : Axis::kLinear;
}

// A line of one value of each result that has it.
template <typename Value>
PlotLine LineOf(const Series& series, const std::string& axis, size_t colour, Value value) {
  PlotLine line{.name = series.name, .points = {}, .colour = colour};
  for (const Result* result : series.results) {
    const std::optional<double> y = value(*result);
    if (y) line.points.emplace_back(*ParamNumber(*result, axis), *y);
  }
  return line;
}

std::string Joined(const std::string& series, const std::string& what) {
  return series.empty() ? what : what.empty() ? series : absl::StrCat(series, ", ", what);
}

void AddPlot(Plot plot, std::vector<Plot>& plots) {
  std::erase_if(plot.lines, [](const PlotLine& line) { return line.points.empty(); });
  if (plot.lines.empty()) return;
  plot.x = AxisFor(plot.lines, true);
  plot.y = AxisFor(plot.lines, false);
  plots.push_back(std::move(plot));
}

void AddFigures(const Group& group, const std::string& axis, const std::vector<Series>& series,
                std::vector<Plot>& plots) {
  Plot figures{.title = absl::StrCat(Words(group.front()->name), " by ", Words(axis)),
               .about = "dashed: the bound measured in the same run.",
               .x_label = Words(axis),
               .y_label = group.front()->unit,
               .lines = {}};
  Plot latencies{.title = absl::StrCat(Words(group.front()->name), ": latency by ", Words(axis)),
                 .about = "solid: the median; dashed: the 99th percentile.",
                 .x_label = Words(axis),
                 .y_label = "us",
                 .lines = {}};
  for (size_t i = 0; i < series.size(); ++i) {
    const Series& one = series[i];
    figures.lines.push_back(
        LineOf(one, axis, i, [](const Result& result) { return std::optional(result.figure); }));
    figures.lines.back().name = Joined(one.name, "measured");
    figures.lines.push_back(LineOf(one, axis, i, [](const Result& r) { return r.bound; }));
    figures.lines.back().name = Joined(one.name, "bound");
    figures.lines.back().is_dashed = true;
    figures.lines.back().mark_every = 0;
    latencies.lines.push_back(LineOf(one, axis, i, [](const Result& r) { return r.p50; }));
    latencies.lines.back().name = Joined(one.name, "p50");
    latencies.lines.push_back(LineOf(one, axis, i, [](const Result& r) { return r.p99; }));
    latencies.lines.back().name = Joined(one.name, "p99");
    latencies.lines.back().is_dashed = true;
  }
  const bool has_bounds = std::any_of(group.begin(), group.end(),
                                      [](auto* result) { return result->bound.has_value(); });
  if (!has_bounds) figures.about = "as measured.";
  AddPlot(std::move(figures), plots);
  AddPlot(std::move(latencies), plots);
}

// One picture for each series, with a line for each of its results.
void AddDistributions(const Group& group, const std::string& axis,
                      const std::vector<Series>& series, std::vector<Plot>& plots) {
  for (const Series& one : series) {
    Plot plot{.title = Joined(Words(group.front()->name) + ": distribution of latencies", one.name),
              .about = "how long the given share of the answers took at most.",
              .x_label = "share of the answers",
              .y_label = "us",
              .x = Axis::kNines,
              .y = Axis::kLog,
              .lines = {}};
    for (size_t i = 0; i < one.results.size(); ++i) {
      const Result& result = *one.results[i];
      if (result.latency_points.empty()) continue;
      plot.lines.push_back({.name = absl::StrCat(Words(axis), " ", result.params.at(axis)),
                            .points = result.latency_points,
                            .colour = i,
                            .mark_every = kDistributionMarks});
    }
    if (!plot.lines.empty()) plots.push_back(std::move(plot));
  }
}

// What became of requests that were offered, as it is counted by the open loop.
void AddOutcomes(const Group& group, const std::string& axis, const std::vector<Series>& series,
                 std::vector<BarPlot>& bars) {
  struct Part {
    const char* name;
    std::vector<std::string_view> counts;
  };
  static const std::vector<Part> parts = {
      {.name = "answered in time", .counts = {"in_time"}},
      {.name = "answered past the deadline", .counts = {"past_deadline"}},
      {.name = "refused: over capacity", .counts = {"refused"}},
      {.name = "refused: past the deadline", .counts = {"late"}},
      {.name = "failed or unanswered", .counts = {"failed", "unanswered"}},
      {.name = "not sent: no connection free", .counts = {"not_sent_no_connection"}},
      {.name = "not sent: the generator was busy", .counts = {"not_sent_generator_late"}}};
  for (const Series& one : series) {
    BarPlot plot{
        .title = Joined("what became of the offered requests, by " + Words(axis), one.name),
        .about = absl::StrCat("shares of the arrivals of ", Words(group.front()->name), "."),
        .part_names = {},
        .bars = {}};
    for (const Part& part : parts) plot.part_names.emplace_back(part.name);
    for (const Result* result : one.results) {
      const std::map<std::string, double> counts(result->measured.begin(), result->measured.end());
      if (!counts.contains("offered")) continue;
      BarPlot::Bar bar{.name = absl::StrCat(Words(axis), " ", result->params.at(axis)),
                       .parts = {}};
      for (const Part& part : parts) {
        bar.parts.push_back(0);
        for (const std::string_view name : part.counts) {
          const auto found = counts.find(std::string(name));
          if (found != counts.end()) bar.parts.back() += found->second;
        }
      }
      plot.bars.push_back(std::move(bar));
    }
    if (!plot.bars.empty()) bars.push_back(std::move(plot));
  }
}

// `judged_too` are the results of the same name that have a target, this one among them.
void AddMargin(const Result& result, const Group& judged_too, MarginPlot& plot) {
  const std::optional<bool> met = MeetsTarget(result);
  if (!met) return;
  double limit = 0;
  if (!absl::SimpleAtod(result.target.substr(3), &limit)) return;
  const double judged = result.ratio.value_or(result.figure);
  const bool more_is_better = result.target.front() == '>';
  // Against a limit of nothing, and for nothing, there is no ratio: met or missed, by far.
  double margin = *met ? HUGE_VAL : 0;
  if (judged > 0 && limit > 0) margin = more_is_better ? judged / limit : limit / judged;
  std::string name = Joined(Words(result.name), LineNameOf(result, judged_too, ""));
  constexpr size_t kNameMax = 44;
  if (name.size() > kNameMax) name.resize(kNameMax);
  plot.margins.push_back({.name = std::move(name),
                          .margin = margin,
                          .text = absl::StrCat(ShortNumber(judged), ", target ", result.target)});
}

}  // namespace

ReportPlots PlotsOf(std::span<const Result> results) {
  ReportPlots plots;
  plots.margins.title = "Targets";
  plots.margins.about =
      "how far each judged figure is from its target; right of the line it is met.";
  for (const Group& group : GroupsOf(results)) {
    Group judged = group;
    std::erase_if(judged, [](const Result* result) { return !MeetsTarget(*result); });
    for (const Result* result : judged) AddMargin(*result, judged, plots.margins);
    const std::string axis = AxisOf(group);
    if (axis.empty()) continue;
    const std::vector<Series> series = SeriesOf(group, axis);
    AddFigures(group, axis, series, plots.plots);
    AddDistributions(group, axis, series, plots.plots);
    AddOutcomes(group, axis, series, plots.bars);
  }
  return plots;
}

std::string TitleOf(const Result& result) {
  std::string title = Words(result.name);
  for (const auto& [param, value] : result.params)
    absl::StrAppend(&title, ", ", Words(param), " ", value);
  return title;
}

}  // namespace hps::bench
