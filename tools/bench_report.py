#!/usr/bin/env python3
"""Draws a page from what `hps bench --out` wrote: every figure with its bound, target and verdict.

    tools/bench_report.py RESULT.json [RESULT.json ...] --out PAGE.html

The page is one file that loads nothing and runs no script. Results of one name that differ in a
numeric parameter (load, batch, keys, ...) become plots over that parameter: the figures with their
bounds, and the latencies. Needs matplotlib (tools/requirements.txt).
"""

import argparse
import html
import io
import json
import pathlib
import re
import sys

import matplotlib
from matplotlib.figure import Figure

# Parameters that a plot may run over, the likeliest first. Other parameters tell lines apart.
AXES = ["load", "concurrency", "batch", "keys", "keys_per_table", "alpha", "rows",
        "rows_per_table", "threads", "connections", "tables", "dim"]
POINTS_MIN = 3  # fewer are better read in the table
LINES_MAX = 12
LOG_SPAN = 12  # an axis is logarithmic when its largest value is this many times its smallest
COLUMNS = ["result", "figure", "bound", "unit", "ratio", "target", "verdict", "p50 us", "p99 us",
           "runs"]
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1em 0}
td,th{padding:.25em .7em;border-bottom:1px solid #8884;text-align:left}
td.number{text-align:right} .met{color:#176f3d} .missed{color:#b3261e;font-weight:600}
.plots{display:flex;flex-wrap:wrap;gap:1em} .plots svg{max-width:100%;height:auto}
"""


def verdict_of(result: dict) -> str:
    """"met" or "missed"; "" where there is no target, or nothing that it could judge."""
    target = re.fullmatch(r"([<>]=) ([0-9.]+)", result.get("target", ""))
    judged = result.get("ratio") if "bound" in result else result.get("figure")
    if target is None or judged is None or "skipped" in result:
        return ""
    limit = float(target[2])
    return "met" if (judged >= limit if target[1] == ">=" else judged <= limit) else "missed"


def number_of(result: dict, name: str) -> float | None:
    try:
        return float(result["params"][name])
    except (KeyError, ValueError):
        return None


def groups_of(results: list[dict]) -> list[list[dict]]:
    """Measured results by name and unit, in the order of the report."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for result in results:
        if "skipped" not in result:
            groups.setdefault((result["name"], result["unit"]), []).append(result)
    return list(groups.values())


def axis_of(group: list[dict]) -> str | None:
    """The parameter with the most values, at least POINTS_MIN."""
    counts = {axis: len({number_of(result, axis) for result in group} - {None}) for axis in AXES}
    best = max(AXES, key=lambda axis: counts[axis])
    return best if counts[best] >= POINTS_MIN else None


def series_of(group: list[dict], axis: str) -> dict[str, list[dict]]:
    """Lines of a plot: results that differ in `axis` alone, by what tells them from the others."""
    varying = sorted({name for result in group for name in result["params"] if name != axis
                      and len({other["params"].get(name) for other in group}) > 1
                      and (name in AXES or number_of(result, name) is None)})
    series: dict[str, list[dict]] = {}
    for result in group:
        if number_of(result, axis) is None:
            continue
        words = [f"{name} {result['params'][name]}" for name in varying if name in result["params"]]
        series.setdefault(", ".join(words), []).append(result)
    for line in series.values():
        line.sort(key=lambda result: number_of(result, axis))
    return dict(list(series.items())[:LINES_MAX])


def svg_of(title: str, axis: str, unit: str, lines: list[tuple]) -> str:
    """One plot; `lines` has (label, x values, y values, colour number, style)."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for label, xs, ys, colour, style in lines:
        axes.plot(xs, ys, style, color=f"C{colour % 10}", label=label, markersize=4)
    for values, scale in ((sum((line[1] for line in lines), []), axes.set_xscale),
                          (sum((line[2] for line in lines), []), axes.set_yscale)):
        if min(values) > 0 and max(values) > LOG_SPAN * min(values):
            scale("log")
    axes.set(title=title, xlabel=axis.replace("_", " "), ylabel=unit)
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="small")
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg"):]


def plots_of(group: list[dict]) -> list[str]:
    axis = axis_of(group)
    if axis is None:
        return []
    name = group[0]["name"].replace("_", " ")
    figures: list[tuple] = []
    latencies: list[tuple] = []
    for colour, (label, line) in enumerate(series_of(group, axis).items()):
        for lines, member, what, style in ((figures, "figure", "measured", "o-"),
                                           (figures, "bound", "bound", "--"),
                                           (latencies, "p50", "p50", "o-"),
                                           (latencies, "p99", "p99", "s--")):
            points = [(number_of(result, axis), result[member]) for result in line
                      if member in result]
            if points:
                xs, ys = (list(values) for values in zip(*points))
                lines.append((", ".join(filter(None, [label, what])), xs, ys, colour, style))
    pages = []
    if figures:
        pages.append(svg_of(f"{name} by {axis}", axis, group[0]["unit"], figures))
    if latencies:
        pages.append(svg_of(f"{name}: latency by {axis}", axis, "us", latencies))
    return pages


def label_of(result: dict) -> str:
    params = ", ".join(f"{name}={value}" for name, value in result.get("params", {}).items())
    return result["name"].replace("_", " ") + (f": {params}" if params else "")


def row_of(result: dict) -> str:
    def cell(text: str, style: str = "") -> str:
        return f'<td class="{style}">{html.escape(text)}</td>'

    def number(member: str) -> str:
        return cell(f"{result[member]:.4g}" if member in result else "", "number")

    verdict = verdict_of(result)
    shown = verdict or (f"not measured: {result['skipped']}" if "skipped" in result else "")
    return "<tr>" + "".join([
        cell(label_of(result)), number("figure"), number("bound"), cell(result["unit"]),
        number("ratio"), cell(result.get("target", "")), cell(shown, verdict), number("p50"),
        number("p99"), number("runs")]) + "</tr>\n"


def section_of(report: dict) -> str:
    results, machine = report["results"], report["machine"]
    verdicts = [verdict_of(result) for result in results]
    plots = [plot for group in groups_of(results) for plot in plots_of(group)]
    about = ", ".join(machine[name] for name in ("cpu", "gpu", "commit", "date") if name in machine)
    return "".join([
        f"<h1>hps bench {html.escape(report['scenario'])}</h1>\n<p>{html.escape(about)}</p>\n",
        f"<p>{verdicts.count('met')} targets met, {verdicts.count('missed')} missed, "
        f"{sum('skipped' in result for result in results)} not measured.</p>\n",
        '<div class="plots">\n', *plots, "</div>\n<table>\n<thead><tr>",
        *(f"<th>{column}</th>" for column in COLUMNS), "</tr></thead>\n<tbody>\n",
        *(row_of(result) for result in results), "</tbody>\n</table>\n"])


def page_of(reports: list[dict]) -> str:
    title = "hps bench " + ", ".join(report["scenario"] for report in reports)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>'
            f"{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
            + "".join(section_of(report) for report in reports) + "</body></html>\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        reports = [json.loads(path.read_text()) for path in arguments.results]
        page = page_of(reports)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"bench_report: {error!r}: not a report of `hps bench --out`", file=sys.stderr)
        return 1
    arguments.out.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
