#include "bench/report_html.h"

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/markup.h"
#include "bench/plot.h"
#include "bench/report.h"
#include "bench/report_plots.h"

namespace hps::bench {
namespace {

constexpr char kStyle[] = R"(
:root { color-scheme: light dark;
  --page: #f4f6f9; --panel: #fff; --line: #dde3ea; --grid: #e6ebf1; --ink: #17202c;
  --soft: #566474;
  --good: #14733f; --bad: #b42318; --warn: #8a5a00;
  --s0: #1f63c8; --s1: #c2410c; --s2: #0b7a6f; --s3: #8b3fc4; --s4: #b0304f; --s5: #5f6f1d;
  --s6: #0e7490; --s7: #6b4a1b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10151c; --panel: #181f29; --line: #2f3a48; --grid: #252e3a; --ink: #e4eaf1;
  --soft: #9fadbc;
  --good: #4cc584; --bad: #ff8a80; --warn: #e3ad4b;
  --s0: #78aef8; --s1: #f59e5b; --s2: #3fc7b5; --s3: #c39af2; --s4: #f58ba4; --s5: #b9cc5a;
  --s6: #5cc8e0; --s7: #d3b07a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header, main { max-width: 1400px; margin: 0 auto; padding: 20px 20px 0; }
main { padding-bottom: 48px; }
h1 { font-size: 24px; margin: 0; letter-spacing: .01em; }
h2 { font-size: 18px; margin: 32px 0 10px; }
p { margin: 4px 0; }
.soft, figcaption span, dt { color: var(--soft); }
dl.machine { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 8px 0 0; }
dl.machine div { display: flex; gap: 8px; }
dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0 0; padding: 0;
  list-style: none; }
.tiles li { background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: 8px 18px 10px; min-width: 130px; }
.tiles b { display: block; font-size: 26px; line-height: 1.3; font-variant-numeric: tabular-nums;
  }
.good { --c: var(--good); } .bad { --c: var(--bad); } .warn { --c: var(--warn); }
.tiles b, .verdict { color: var(--c, inherit); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr));
  gap: 14px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; min-width: 0; }
figure.plot > svg { display: block; width: 100%; height: auto; margin-top: 8px; }
.wide { max-width: 1000px; }
figcaption strong { display: block; }
figcaption strong::first-letter { text-transform: uppercase; }
figcaption span { display: block; font-size: 13px; }
svg text { fill: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--grid); } svg .axis { stroke: var(--soft); }
svg .limit { stroke: var(--ink); stroke-width: 1.4; }
svg .line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
svg .dashed .line, .sample.dashed .line { stroke-dasharray: 6 5; }
svg .mark { fill: var(--c); stroke: var(--panel); stroke-width: 1; }
svg .stem { stroke: var(--c); stroke-width: 3; }
.s0, .p0 { --c: var(--s0); } .s1, .p1 { --c: var(--s1); } .s2 { --c: var(--s2); }
  .s3 { --c: var(--s3); }
.s4, .p4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); }
  .s7, .p7 { --c: var(--s7); }
.p2 { --c: var(--s5); } .p3 { --c: var(--s3); } .p5 { --c: var(--soft); }
  .p6 { --c: var(--line); }
rect { fill: var(--c); stroke: var(--panel); stroke-width: 1; }
.swatch { width: 12px; height: 12px; border-radius: 3px; background: var(--c); flex: none; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 8px 0 0;
  padding: 0;
  font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 7px; }
.sample { width: 30px; height: 12px; flex: none; }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 10px; }
.scroll:focus-visible { outline: 2px solid var(--s0); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
caption { text-align: left; padding: 10px 14px 4px; color: var(--soft); }
th, td { text-align: left; vertical-align: top; padding: 6px 14px;
  border-top: 1px solid var(--grid); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 600; min-width: 230px; }
tbody th span { display: block; font-weight: 400; color: var(--soft); font-size: 12.5px;
  overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { font-weight: 650; white-space: nowrap; }
td.reason { white-space: normal; min-width: 180px; }
@media print { body { background: none; } figure, .scroll { break-inside: avoid; } }
)";

struct Verdict {
  const char* style = "";
  std::string text;
};

Verdict VerdictOf(const Result& result) {
  if (!result.skipped.empty()) return {.style = "warn", .text = "not measured: " + result.skipped};
  const std::optional<bool> met = MeetsTarget(result);
  if (!met) return {};
  return *met ? Verdict{.style = "good", .text = "\u2713 met"}
              : Verdict{.style = "bad", .text = "\u2717 missed"};
}

std::string Cell(const std::string& text, const char* style) {
  return absl::StrCat("<td class=\"", style, "\">", Escaped(text), "</td>");
}

std::string NumberCell(const std::optional<double>& value) {
  return Cell(value ? ShortNumber(*value) : "", "number");
}

std::string RowOf(const Result& result) {
  std::string params;
  for (const auto& [name, value] : result.params)
    absl::StrAppend(&params, params.empty() ? "" : ", ", name, " ", value);
  const bool is_measured = result.skipped.empty();
  const Verdict verdict = VerdictOf(result);
  return absl::StrCat(
      "<tr><th scope=\"row\">", Escaped(result.name), "<span>", Escaped(params), "</span></th>",
      NumberCell(is_measured ? std::optional(result.figure) : std::nullopt),
      NumberCell(result.bound), Cell(result.unit, ""), NumberCell(result.ratio),
      Cell(result.target, "number"),
      Cell(verdict.text,
           absl::StrCat("verdict ", verdict.style, is_measured ? "" : " reason").c_str()),
      NumberCell(result.p50), NumberCell(result.p99),
      NumberCell(result.runs > 0 ? std::optional(static_cast<double>(result.runs)) : std::nullopt),
      "</tr>\n");
}

// A table that scrolls by itself where it is too wide, also by keys.
std::string Table(const std::string& caption, std::span<const char* const> columns,
                  const std::string& rows) {
  std::string table = absl::StrCat(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", Escaped(caption),
      "\">\n<table>\n<caption>", Escaped(caption), "</caption>\n<thead><tr>");
  for (const char* column : columns) absl::StrAppend(&table, "<th scope=\"col\">", column, "</th>");
  return absl::StrCat(table, "</tr></thead>\n<tbody>\n", rows, "</tbody>\n</table>\n</div>\n");
}

std::string ResultTable(const std::vector<Result>& results) {
  constexpr std::array<const char*, 10> kColumns = {"result", "figure", "bound",   "unit",
                                                    "ratio",  "target", "verdict", "p50 us",
                                                    "p99 us", "runs"};
  std::string rows;
  for (const Result& result : results) rows += RowOf(result);
  return Table(
      "Each figure beside its bound, measured in the same run. A target judges the ratio "
      "of both, or the figure where there is no bound.",
      kColumns, rows);
}

std::string MeasuredTable(const std::vector<Result>& results) {
  constexpr std::array<const char*, 2> kColumns = {"result", "what else was measured"};
  std::string rows;
  for (const Result& result : results) {
    if (result.measured.empty()) continue;
    std::string all;
    for (const auto& [name, value] : result.measured)
      absl::StrAppend(&all, all.empty() ? "" : ", ", name, " ", ShortNumber(value));
    absl::StrAppend(&rows, "<tr><th scope=\"row\">", Escaped(TitleOf(result)), "</th>",
                    Cell(all, ""), "</tr>\n");
  }
  if (rows.empty()) return "";
  return "<h2>Counts</h2>\n" + Table("What was counted beside the figures.", kColumns, rows);
}

std::string Tile(size_t count, const char* what, const char* style) {
  return absl::StrCat("<li class=\"", count > 0 ? style : "", "\"><b>", count, "</b>", what,
                      "</li>\n");
}

std::string Tiles(const std::vector<Result>& results) {
  size_t met = 0;
  size_t missed = 0;
  size_t skipped = 0;
  for (const Result& result : results) {
    const std::optional<bool> verdict = MeetsTarget(result);
    if (verdict) ++(*verdict ? met : missed);
    if (!result.skipped.empty()) ++skipped;
  }
  return absl::StrCat("<ul class=\"tiles\">\n", Tile(met, "targets met", "good"),
                      Tile(missed, "targets missed", "bad"), Tile(skipped, "not measured", "warn"),
                      Tile(results.size(), "results", ""), "</ul>\n");
}

std::string MachineList(const Machine& machine) {
  std::string list = "<dl class=\"machine\">\n";
  const auto add = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    absl::StrAppend(&list, "<div><dt>", name, "</dt><dd>", Escaped(value), "</dd></div>\n");
  };
  add("processor", machine.cpu);
  add("GPU", machine.gpu);
  add("commit", machine.commit);
  add("date", machine.date);
  return list + "</dl>\n";
}

std::string PlotSections(const std::vector<Result>& results) {
  const ReportPlots plots = PlotsOf(results);
  size_t number = 0;
  std::string sections;
  if (const std::string margins = MarginFigure(plots.margins, number++); !margins.empty())
    absl::StrAppend(&sections, "<h2>Targets</h2>\n<div class=\"wide\">\n", margins, "</div>\n");
  std::string figures;
  for (const Plot& plot : plots.plots) figures += PlotFigure(plot, number++);
  for (const BarPlot& plot : plots.bars) figures += BarFigure(plot, number++);
  if (!figures.empty())
    absl::StrAppend(&sections, "<h2>Plots</h2>\n<div class=\"plots\">\n", figures, "</div>\n");
  return sections;
}

}  // namespace

std::string ReportHtml(const Report& report) {
  const std::string title = "hps bench " + Escaped(report.scenario);
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
      title, "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<header>\n<h1>", title,
      "</h1>\n", MachineList(report.machine), Tiles(report.results), "</header>\n<main>\n",
      PlotSections(report.results), "<h2>Results</h2>\n", ResultTable(report.results),
      MeasuredTable(report.results), "</main>\n</body>\n</html>\n");
}

}  // namespace hps::bench
