// Lists: the models, the tables, and the dialog of one table in which a key can be looked up.

import { Chart, element, meter } from "./charts.js";
import {
  STATUSES, STATUS_LABELS, formatBytes, formatCount, formatRate, formatSeconds, formatShare, formatWhole, shares,
} from "./series.js";

const TABLES_SHOWN_MAX = 200;

// A table whose columns can be sorted: [{name, value(row) for the order, cell(row), first: "desc"}].
class SortedTable {
  constructor(table, columns, sortedBy, descending) {
    Object.assign(this, { table, columns, sortedBy, descending });
    this.rows = [];
    this.head = columns.map((column, i) => {
      const button = element("button", { type: "button" }, column.name);
      button.addEventListener("click", () => this.sortBy(i));
      return element("th", { scope: "col" }, button);
    });
    this.body = element("tbody");
    table.append(element("thead", {}, element("tr", {}, ...this.head)), this.body);
  }

  sortBy(index) {
    this.descending = this.sortedBy === index ? !this.descending : index !== 0;
    this.sortedBy = index;
    this.draw();
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const { value } = this.columns[this.sortedBy];
    const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    const sorted = [...this.rows].sort((a, b) => (this.descending ? order(value(b), value(a)) : order(value(a), value(b))));
    this.head.forEach((cell, i) => {
      cell.setAttribute("aria-sort", i !== this.sortedBy ? "none" : this.descending ? "descending" : "ascending");
    });
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    this.body.replaceChildren(...sorted.map((row) => element("tr", {}, ...this.columns.map((column, i) => {
      const cell = element(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {});
      cell.append(column.cell(row));
      return cell;
    }))));
    if (focused) this.body.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }
}

export function shareMeter(counts, label) {
  const parts = shares(counts);
  if (parts === null) return element("span", { class: "hint" }, "–");
  const text = STATUSES.filter((status) => parts[status] > 0)
      .map((status) => `${STATUS_LABELS[status]} ${formatShare(parts[status])}`).join(", ");
  return meter(STATUSES.map((status) => [status, parts[status]]), `${label}: ${text}`);
}

export class ModelList {
  constructor(table) {
    const stage = (share) => (row) => row.percentile(share) ?? 0;
    const seconds = (share) => (row) => formatSeconds(row.percentile(share));
    this.list = new SortedTable(table, [
      { name: "Model", value: (row) => row.model.name, cell: (row) => row.model.name },
      { name: "Version", value: (row) => Number(row.model.version), cell: (row) => row.model.version || "–" },
      { name: "State", value: (row) => row.model.state, cell: (row) => {
        const kind = { ready: "good", loading: "warn" }[row.model.state] ?? "bad";
        return element("span", { class: `badge ${kind}`, title: row.model.reason }, row.model.state);
      } },
      { name: "Requests/s", value: (row) => row.now?.requests ?? 0, cell: (row) => formatCount(row.now?.requests ?? 0) },
      { name: "Keys/s", value: (row) => row.now?.keys ?? 0, cell: (row) => formatCount(row.now?.keys ?? 0) },
      { name: "Failed/s", value: (row) => row.now?.failed ?? 0, cell: (row) => formatCount(row.now?.failed ?? 0) },
      { name: "p50", value: stage(0.5), cell: seconds(0.5) },
      { name: "p99", value: stage(0.99), cell: seconds(0.99) },
      { name: "Requests per lookup", value: (row) => row.batch, cell: (row) => (row.batch > 0 ? formatCount(row.batch) : "–") },
      { name: "Waiting", value: (row) => row.model.queue_depth, cell: (row) => formatWhole(row.model.queue_depth) },
    ], 0, false);
  }

  show(history) {
    const sample = history.last();
    this.list.show(history.latest.models.map((model) => {
      const now = sample?.models[model.name];
      return { model, now, batch: now?.batches > 0 ? (now.requests + now.failed) / now.batches : 0,
               percentile: (share) => history.recentPercentile("total", model.name, share) };
    }));
  }
}

export class TableList {
  constructor(table, filter, hint, open) {
    this.filter = filter;
    this.hint = hint;
    const levelCell = (level, figure, format) => (row) => (row.table[level] ? format(row.table[level][figure]) : "–");
    this.list = new SortedTable(table, [
      { name: "Table", value: (row) => row.table.name, cell: (row) => {
        const button = element("button", { type: "button", class: "link", "data-name": row.table.name }, row.table.name);
        button.addEventListener("click", () => open(row.table.name));
        return button;
      } },
      { name: "Dim", value: (row) => row.table.dim, cell: (row) => `${row.table.dim} ${row.table.dtype}` },
      { name: "Rows", value: (row) => row.table.rows, cell: (row) => formatCount(row.table.rows) },
      { name: "On disk", value: (row) => row.table.bytes, cell: (row) => formatBytes(row.table.bytes) },
      { name: "In level 1", value: (row) => row.table.l1?.rows ?? -1, cell: levelCell("l1", "rows", formatCount) },
      { name: "In level 2", value: (row) => row.table.l2?.rows ?? -1, cell: levelCell("l2", "rows", formatCount) },
      { name: "Memory", value: (row) => row.table.l2?.bytes ?? -1, cell: levelCell("l2", "bytes", formatBytes) },
      { name: "Keys/s", value: (row) => row.now?.rate ?? 0, cell: (row) => formatCount(row.now?.rate ?? 0) },
      { name: "Answered by", value: (row) => shares(row.table.keys ?? {})?.hit_l3 ?? 0,
        cell: (row) => shareMeter(row.now && row.now.rate > 0 ? row.now.deltas : row.table.keys ?? {}, "answered by") },
    ], 0, false);
    filter.addEventListener("input", () => this.show(this.history));
  }

  show(history) {
    if (!history?.latest) return;
    this.history = history;
    const sample = history.last();
    const wanted = this.filter.value.trim().toLowerCase();
    const all = history.latest.tables.filter((table) => table.name.toLowerCase().includes(wanted));
    const shown = all.slice(0, TABLES_SHOWN_MAX);
    this.list.show(shown.map((table) => ({ table, now: sample?.tables[table.name] })));
    this.hint.textContent = all.length === 0 ? "No table matches." :
        all.length > shown.length ? `${shown.length} of ${all.length} tables; the filter finds the others.` : "";
  }
}

export class TableDialog {
  constructor(get) {
    const by = (id) => document.getElementById(id);
    Object.assign(this, { get, dialog: by("table-dialog"), title: by("dialog-title"), facts: by("dialog-facts"),
                          levels: by("dialog-levels"), key: by("lookup-key"), answer: by("lookup-answer"), name: null });
    this.share = new Chart(by("dialog-share"), {
      title: "Answered by", stacked: true, format: formatShare,
      series: STATUSES.map((status) => ({ key: status, label: STATUS_LABELS[status], color: status })),
    });
    by("dialog-close").addEventListener("click", () => this.dialog.close());
    by("lookup-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.lookUp();
    });
  }

  open(name, history, window) {
    this.name = name;
    this.title.textContent = name;
    this.answer.replaceChildren();
    this.key.value = "";
    this.dialog.showModal();
    this.show(history, window);
  }

  show(history, window) {
    const table = history.latest?.tables.find((one) => one.name === this.name);
    if (!this.dialog.open || !table) return;
    const facts = { Rows: formatWhole(table.rows), Row: `${table.dim} × ${table.dtype}`, "On disk": formatBytes(table.bytes),
                    "Keys/s": formatRate(history.last()?.tables[table.name]?.rate ?? 0), Served: table.served ? "yes" : "no" };
    this.facts.replaceChildren(...Object.entries(facts).map(([term, text]) =>
      element("div", {}, element("dt", {}, term), element("dd", {}, text))));
    this.showLevels(table);
    this.share.show(history.within(window).map((sample) => ({
      time: sample.time, values: sample.gap ? null : shares(sample.tables[table.name]?.deltas ?? {}) })), window);
  }

  showLevels(table) {
    const columns = { Rows: (l) => formatWhole(l.rows), Memory: (l) => formatBytes(l.bytes), Budget: (l) => formatBytes(l.bytes_max),
                      Inserted: (l) => formatCount(l.insertions), Evicted: (l) => formatCount(l.evictions),
                      "Kept out": (l) => formatCount(l.fenced), Dropped: (l) => formatCount(l.dropped), Errors: (l) => formatCount(l.errors) };
    const row = (name, level) => element("tr", {}, element("th", { scope: "row" }, name),
                                         ...Object.values(columns).map((cell) => element("td", {}, cell(level))));
    const rows = [["Level 1", table.l1], ["Level 2", table.l2]].filter(([, level]) => level).map(([name, level]) => row(name, level));
    const heads = ["Level", ...Object.keys(columns)].map((name) => element("th", { scope: "col" }, name));
    this.levels.parentElement.hidden = rows.length === 0;
    this.levels.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  }

  async lookUp() {
    const key = this.key.value.trim();
    const answer = await this.get(`/api/lookup?table=${encodeURIComponent(this.name)}&key=${encodeURIComponent(key)}`);
    if (answer.error) {
      this.answer.replaceChildren(element("p", { class: "error" }, answer.error));
      return;
    }
    const { status, row, seconds } = answer.json;
    this.answer.replaceChildren(
        element("p", {}, element("span", { class: `swatch c-${status}`, "aria-hidden": "true" }),
                ` key ${answer.json.key}: ${STATUS_LABELS[status]} (${status}), ${formatSeconds(seconds)}`),
        element("div", { class: "row", tabindex: "0", role: "region", "aria-label": "the row" }, `[${row.join(", ")}]`));
  }
}
