// How `hps top` looks for people.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/output.h"
#include "cli/top/top_figures.h"

namespace hps::cli {
namespace {

std::string Left(std::string_view text, size_t width) {
  std::string cell(text.substr(0, width));
  cell.append(width - cell.size(), ' ');
  return cell;
}

std::string Right(std::string_view text, size_t width) {
  return text.size() >= width ? std::string(text)
                              : std::string(width - text.size(), ' ') + std::string(text);
}

const std::string& Text(const TopFigures& object, const char* member) {
  return object.at(member).get_ref<const std::string&>();
}

double Number(const TopFigures& object, const char* member) {
  return object.at(member).get<double>();
}

std::string Count(const TopFigures& object, const char* member) {
  return ReadableCount(Number(object, member));
}

std::string Seconds(const TopFigures& object, const char* member) {
  if (!object.contains(member)) return "-";
  const double seconds = Number(object, member);
  if (seconds < 1e-3) return Fixed(seconds * 1e6, 0) + " us";
  if (seconds < 1) return Fixed(seconds * 1e3, seconds < 0.01 ? 2 : 1) + " ms";
  return Fixed(seconds, 2) + " s";
}

std::string Uptime(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrCat(whole / 60, " min");
  if (whole < 86400) return absl::StrCat(whole / 3600, " h ", whole / 60 % 60, " min");
  return absl::StrCat(whole / 86400, " d ", whole / 3600 % 24, " h");
}

// Ten characters, a letter for each tenth: 1, 2, 3 for the levels, a for absent, d for default.
std::string ShareBar(const TopFigures& table) {
  constexpr size_t kTenths = 10;
  if (!table.contains("answered_by")) return std::string(kTenths, '.');
  std::string bar;
  double reached = 0;
  for (const auto& [name, share] : table.at("answered_by").items()) {
    reached += share.get<double>();
    const auto end = static_cast<size_t>(std::lround(reached * kTenths));
    while (bar.size() < std::min(end, kTenths)) bar += name[0] == 'l' ? name[1] : name[0];
  }
  return bar;
}

std::string ShareLine(const TopFigures& figures) {
  if (!figures.contains("answered_by")) return "answered by  -";
  const auto percent = [&shares = figures.at("answered_by")](const char* answer) {
    return Fixed(Number(shares, answer) * 100, 1) + " %";
  };
  return absl::StrCat("answered by  level 1 ", percent("l1"), "   level 2 ", percent("l2"),
                      "   level 3 ", percent("l3"), "   absent ", percent("absent"), "   default ",
                      percent("default"));
}

std::vector<std::string> HeadLines(const TopFigures& figures) {
  const auto rate = [&](const char* member) { return Count(figures, member) + "/s"; };
  const TopFigures& latency = figures.at("latency_seconds");
  return {absl::StrCat("hps ", Text(figures, "version"), "  ", Text(figures, "state"), "  up ",
                       Uptime(Number(figures, "uptime_seconds")), "  ",
                       ReadableBytes(Number(figures, "resident_bytes")), "  ",
                       Fixed(Number(figures, "cpu_cores"), 2), " cores  ",
                       figures.at("connections_http").dump(), " HTTP connections"),
          "",
          absl::StrCat("requests     HTTP ", rate("http_per_second"), "   gRPC ",
                       rate("grpc_per_second"), "   keys ", rate("keys_per_second"), "   refused ",
                       rate("refused_per_second"), "   late ", rate("late_per_second"), "   wrong ",
                       rate("wrong_per_second")),
          absl::StrCat("latency      p50 ", Seconds(latency, "p50"), "   p95 ",
                       Seconds(latency, "p95"), "   p99 ", Seconds(latency, "p99")),
          ShareLine(figures)};
}

std::vector<std::string> StreamLines(const TopFigures& figures) {
  if (!figures.contains("stream")) return {};
  const TopFigures& stream = figures.at("stream");
  std::vector<std::string> lines = {
      absl::StrCat("stream       ", Count(stream, "rows_per_second"), " rows/s   lag ",
                   Count(stream, "lag_records"), " records, ", Seconds(stream, "lag_seconds"),
                   "   publish to level 3 p99 ", Seconds(stream, "l3_freshness_p99_seconds"),
                   "   set aside ", stream.at("parked").dump())};
  const std::string& problem = Text(stream, "problem");
  if (!problem.empty()) lines.push_back("             NOT READABLE: " + problem);
  return lines;
}

std::vector<std::string> LevelLines(const TopFigures& figures) {
  std::vector<std::string> lines = {
      "", "LEVEL  STATE       ROWS        BYTES       BUDGET  EVICTIONS/S  ERRORS"};
  for (const TopFigures& level : figures.at("levels")) {
    const auto text = [&](const char* member, const auto& format) {
      return level.contains(member) ? format(Number(level, member)) : std::string("-");
    };
    lines.push_back(absl::StrCat(
        Left(Text(level, "name"), 7), Left(level.at("up").get<bool>() ? "up" : "DOWN", 5),
        Right(text("rows", ReadableCount), 11), Right(text("bytes", ReadableBytes), 13),
        Right(text("bytes_max", ReadableBytes), 13),
        Right(Count(level, "evictions_per_second"), 13), Right(level.at("errors").dump(), 8)));
    for (const TopFigures& node : level.value("nodes", TopFigures::array())) {
      lines.push_back(
          absl::StrCat("  ", Text(node, "address"), "  ",
                       node.at("bypassed").get<bool>() ? "BYPASSED, it does not answer" : "answers",
                       "  ", node.at("failures").dump(), " failures"));
    }
  }
  return lines;
}

std::vector<std::string> ModelLines(const TopFigures& figures) {
  std::vector<std::string> lines = {
      "",
      "MODEL                 VERSION  STATE        REQUESTS/S   KEYS/S      P50      P99  "
      "WAITING"};
  for (const TopFigures& model : figures.at("models")) {
    const TopFigures& latency = model.at("latency_seconds");
    lines.push_back(
        absl::StrCat(Left(Text(model, "name"), 21), " ", Left(Text(model, "version"), 8), " ",
                     Left(Text(model, "state"), 11), Right(Count(model, "requests_per_second"), 12),
                     Right(Count(model, "keys_per_second"), 9), Right(Seconds(latency, "p50"), 9),
                     Right(Seconds(latency, "p99"), 9), Right(model.at("queue_depth").dump(), 9)));
  }
  return lines;
}

std::vector<std::string> TableLines(const TopFigures& figures) {
  std::vector<std::string> lines = {
      "", "TABLE                                 ROWS     KEYS/S  ANSWERED BY"};
  for (const TopFigures& table : figures.at("tables")) {
    lines.push_back(absl::StrCat(Left(Text(table, "name"), 32), Right(Count(table, "rows"), 10),
                                 Right(Count(table, "keys_per_second"), 11), "  ",
                                 ShareBar(table)));
  }
  return lines;
}

}  // namespace

std::string TopText(const TopFigures& figures, size_t columns, size_t lines_max) {
  std::vector<std::string> lines = HeadLines(figures);
  for (const auto& more :
       {StreamLines(figures), LevelLines(figures), ModelLines(figures), TableLines(figures)}) {
    lines.insert(lines.end(), more.begin(), more.end());
  }
  if (lines_max > 0 && lines.size() > lines_max) lines.resize(lines_max);
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += line.substr(0, columns);
  }
  return text;
}

}  // namespace hps::cli
