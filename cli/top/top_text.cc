// How `hps top` looks: as text for people, and as JSON for programs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

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

std::string Seconds(const std::optional<double>& seconds) {
  if (!seconds.has_value()) return "-";
  if (*seconds < 1e-3) return Fixed(*seconds * 1e6, 0) + " us";
  if (*seconds < 1) return Fixed(*seconds * 1e3, *seconds < 0.01 ? 2 : 1) + " ms";
  return Fixed(*seconds, 2) + " s";
}

std::string Percent(double share) { return Fixed(share * 100, 1) + " %"; }

std::string Uptime(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrCat(whole / 60, " min");
  if (whole < 86400) return absl::StrCat(whole / 3600, " h ", whole / 60 % 60, " min");
  return absl::StrCat(whole / 86400, " d ", whole / 3600 % 24, " h");
}

// Ten characters, a letter for each tenth: 1, 2, 3 for the levels, a for absent, d for default.
std::string ShareBar(const std::optional<TopShares>& shares) {
  constexpr size_t kTenths = 10;
  if (!shares.has_value()) return std::string(kTenths, '.');
  std::string bar;
  double reached = 0;
  const auto add = [&](double share, char letter) {
    reached += share;
    const auto end = static_cast<size_t>(std::lround(reached * kTenths));
    while (bar.size() < std::min(end, kTenths)) bar += letter;
  };
  add(shares->l1, '1');
  add(shares->l2, '2');
  add(shares->l3, '3');
  add(shares->absent, 'a');
  add(shares->default_rows, 'd');
  return bar;
}

std::string ShareLine(const std::optional<TopShares>& shares) {
  if (!shares.has_value()) return "answered by  -";
  return absl::StrCat("answered by  level 1 ", Percent(shares->l1), "   level 2 ",
                      Percent(shares->l2), "   level 3 ", Percent(shares->l3), "   absent ",
                      Percent(shares->absent), "   default ", Percent(shares->default_rows));
}

std::vector<std::string> HeadLines(const TopFigures& figures) {
  const auto rate = [](double value) { return ReadableCount(value) + "/s"; };
  return {absl::StrCat("hps ", figures.version, "  ", figures.state, "  up ",
                       Uptime(figures.uptime_seconds), "  ",
                       ReadableBytes(static_cast<double>(figures.resident_bytes)), "  ",
                       Fixed(figures.cpu_cores, 2), " cores  ", figures.connections_http,
                       " HTTP connections"),
          "",
          absl::StrCat("requests     HTTP ", rate(figures.rates.http), "   gRPC ",
                       rate(figures.rates.grpc), "   keys ", rate(figures.rates.keys),
                       "   refused ", rate(figures.rates.refused), "   late ",
                       rate(figures.rates.late), "   wrong ", rate(figures.rates.bad)),
          absl::StrCat("latency      p50 ", Seconds(figures.latency.p50), "   p95 ",
                       Seconds(figures.latency.p95), "   p99 ", Seconds(figures.latency.p99)),
          ShareLine(figures.shares)};
}

std::vector<std::string> StreamLines(const TopFigures& figures) {
  if (!figures.stream.has_value()) return {};
  const TopStream& stream = *figures.stream;
  std::vector<std::string> lines = {
      absl::StrCat("stream       ", ReadableCount(stream.rows_per_second), " rows/s   lag ",
                   ReadableCount(static_cast<double>(stream.lag_records)), " records, ",
                   Seconds(stream.lag_seconds), "   publish to level 3 p99 ",
                   Seconds(stream.l3_freshness_p99_seconds), "   set aside ", stream.parked)};
  if (!stream.problem.empty()) lines.push_back("             NOT READABLE: " + stream.problem);
  return lines;
}

void WriteStream(const TopFigures& figures, JsonWriter& json) {
  if (!figures.stream.has_value()) return;
  const TopStream& stream = *figures.stream;
  json.Name("stream").BeginObject().Member("problem", std::string_view(stream.problem));
  json.Member("rows_per_second", stream.rows_per_second);
  json.Member("lag_records", stream.lag_records).Member("lag_seconds", stream.lag_seconds);
  json.Member("parked", stream.parked);
  if (stream.l3_freshness_p99_seconds.has_value())
    json.Member("l3_freshness_p99_seconds", *stream.l3_freshness_p99_seconds);
  json.EndObject();
}

std::vector<std::string> LevelLines(const TopFigures& figures) {
  std::vector<std::string> lines = {
      "", "LEVEL  STATE       ROWS        BYTES       BUDGET  EVICTIONS/S  ERRORS"};
  for (const TopLevel& level : figures.levels) {
    const std::string budget =
        level.bytes_max == 0 ? "-" : ReadableBytes(static_cast<double>(level.bytes_max));
    const auto text = [](const std::optional<uint64_t>& value, const auto& format) {
      return value.has_value() ? format(static_cast<double>(*value)) : std::string("-");
    };
    lines.push_back(absl::StrCat(Left(level.name, 7), Left(level.up ? "up" : "DOWN", 5),
                                 Right(text(level.rows, ReadableCount), 11),
                                 Right(text(level.bytes, ReadableBytes), 13), Right(budget, 13),
                                 Right(ReadableCount(level.evictions_per_second), 13),
                                 Right(absl::StrCat(level.errors), 8)));
    for (const TopNode& node : level.nodes) {
      lines.push_back(absl::StrCat("  ", node.address, "  ",
                                   node.bypassed ? "BYPASSED, it does not answer" : "answers", "  ",
                                   node.failures, " failures"));
    }
  }
  return lines;
}

std::vector<std::string> ModelLines(const TopFigures& figures) {
  std::vector<std::string> lines = {
      "",
      "MODEL                 VERSION  STATE        REQUESTS/S   KEYS/S      P50      P99  "
      "WAITING"};
  for (const TopModel& model : figures.models) {
    lines.push_back(absl::StrCat(
        Left(model.name, 21), " ", Left(model.version, 8), " ", Left(model.state, 11),
        Right(ReadableCount(model.requests_per_second), 12),
        Right(ReadableCount(model.keys_per_second), 9), Right(Seconds(model.latency.p50), 9),
        Right(Seconds(model.latency.p99), 9), Right(absl::StrCat(model.queue_depth), 9)));
  }
  return lines;
}

std::vector<std::string> TableLines(const TopFigures& figures) {
  std::vector<std::string> lines = {
      "", "TABLE                                 ROWS     KEYS/S  ANSWERED BY"};
  for (const TopTable& table : figures.tables) {
    lines.push_back(absl::StrCat(
        Left(table.name, 32), Right(ReadableCount(static_cast<double>(table.rows)), 10),
        Right(ReadableCount(table.keys_per_second), 11), "  ", ShareBar(table.shares)));
  }
  return lines;
}

void WriteLatency(const TopLatency& latency, JsonWriter& json) {
  json.Name("latency_seconds").BeginObject();
  if (latency.p50.has_value()) json.Member("p50", *latency.p50);
  if (latency.p95.has_value()) json.Member("p95", *latency.p95);
  if (latency.p99.has_value()) json.Member("p99", *latency.p99);
  json.EndObject();
}

void WriteShares(const std::optional<TopShares>& shares, JsonWriter& json) {
  if (!shares.has_value()) return;
  json.Name("answered_by").BeginObject();
  json.Member("l1", shares->l1).Member("l2", shares->l2).Member("l3", shares->l3);
  json.Member("absent", shares->absent).Member("default", shares->default_rows).EndObject();
}

void WriteModels(const TopFigures& figures, JsonWriter& json) {
  json.Name("models").BeginArray();
  for (const TopModel& model : figures.models) {
    json.BeginObject().Member("name", std::string_view(model.name));
    json.Member("version", std::string_view(model.version));
    json.Member("state", std::string_view(model.state));
    json.Member("requests_per_second", model.requests_per_second);
    json.Member("keys_per_second", model.keys_per_second);
    json.Member("failed_per_second", model.failed_per_second);
    json.Member("queue_depth", model.queue_depth);
    WriteLatency(model.latency, json);
    json.EndObject();
  }
  json.EndArray();
}

void WriteLevels(const TopFigures& figures, JsonWriter& json) {
  json.Name("levels").BeginArray();
  for (const TopLevel& level : figures.levels) {
    json.BeginObject().Member("name", std::string_view(level.name)).Member("up", level.up);
    if (level.rows.has_value()) json.Member("rows", *level.rows);
    if (level.bytes.has_value()) json.Member("bytes", *level.bytes);
    if (level.bytes_max > 0) json.Member("bytes_max", level.bytes_max);
    json.Member("evictions_per_second", level.evictions_per_second);
    json.Member("errors", level.errors);
    if (!level.nodes.empty()) {
      json.Name("nodes").BeginArray();
      for (const TopNode& node : level.nodes) {
        json.BeginObject().Member("address", std::string_view(node.address));
        json.Member("bypassed", node.bypassed).Member("failures", node.failures).EndObject();
      }
      json.EndArray();
    }
    json.EndObject();
  }
  json.EndArray();
}

void WriteTables(const TopFigures& figures, JsonWriter& json) {
  json.Name("tables").BeginArray();
  for (const TopTable& table : figures.tables) {
    json.BeginObject().Member("name", std::string_view(table.name)).Member("rows", table.rows);
    json.Member("keys_per_second", table.keys_per_second);
    WriteShares(table.shares, json);
    json.EndObject();
  }
  json.EndArray();
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

void WriteTopJson(const TopFigures& figures, JsonWriter& json) {
  json.BeginObject().Member("state", std::string_view(figures.state));
  json.Member("version", std::string_view(figures.version));
  json.Member("uptime_seconds", figures.uptime_seconds);
  json.Member("http_per_second", figures.rates.http);
  json.Member("grpc_per_second", figures.rates.grpc);
  json.Member("keys_per_second", figures.rates.keys);
  json.Member("refused_per_second", figures.rates.refused);
  json.Member("late_per_second", figures.rates.late);
  json.Member("wrong_per_second", figures.rates.bad);
  json.Member("cpu_cores", figures.cpu_cores);
  json.Member("resident_bytes", figures.resident_bytes);
  json.Member("connections_http", figures.connections_http);
  WriteLatency(figures.latency, json);
  WriteShares(figures.shares, json);
  WriteStream(figures, json);
  WriteLevels(figures, json);
  WriteModels(figures, json);
  WriteTables(figures, json);
  json.EndObject();
}

}  // namespace hps::cli
