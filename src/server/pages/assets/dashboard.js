// The dashboard: asks for /api/overview, and shows what has changed since the last time.

import { Chart, element, meter } from "./charts.js";
import { ModelList, TableDialog, TableList } from "./tables.js";
import {
  History, STATUSES, STATUS_LABELS, countParts, formatAge, formatBytes, formatCount, formatRate, formatSeconds, formatShare,
  formatWhole, percentile, recentFreshness, secondsParts, shares,
} from "./series.js";

const TIMEOUT_MS = 4000;
const PERCENTILES = { p50: 0.5, p95: 0.95, p99: 0.99 };
const LEVEL_NAMES = { l1: "Level 1", l2: "Level 2", l3: "Level 3" };
const LEVEL_KINDS = { gpu: "GPU cache", memory: "host memory", redis: "Redis", "memory+redis": "host memory and Redis", rocksdb: "page files and RocksDB on disk" };

const by = (id) => document.getElementById(id);
const history = new History();
let token = sessionStorage.getItem("hps-token") ?? "";
let timer = 0;
let failures = 0;

// {json} or {error, unauthorized}: never throws.
async function get(path) {
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.ok) return { json: await response.json() };
    const text = await response.text();
    let error = `the server answered ${response.status}`;
    try {
      error = JSON.parse(text).error ?? error;
    } catch { /* not JSON: the number has to do */ }
    return { error, unauthorized: response.status === 401 };
  } catch (error) {
    return { error: error.name === "TimeoutError" ? "no answer in time" : "the server can't be reached" };
  }
}

const charts = {
  requests: new Chart(by("chart-requests"), { title: "Requests per second", format: formatCount,
    series: [{ key: "http", label: "HTTP", color: "a" }, { key: "grpc", label: "gRPC", color: "b" }] }),
  keys: new Chart(by("chart-keys"), { title: "Keys per second", format: formatCount, series: [{ key: "keys", label: "keys", color: "a" }] }),
  latency: new Chart(by("chart-latency"), { title: "Latency", format: formatSeconds,
    series: Object.keys(PERCENTILES).map((name) => ({ key: name, label: name, color: name })) }),
  share: new Chart(by("chart-share"), { title: "Answered by", format: formatShare, stacked: true,
    series: STATUSES.map((status) => ({ key: status, label: STATUS_LABELS[status], color: status })) }),
  refused: new Chart(by("chart-refused"), { title: "Refused and wrong requests per second", format: formatCount,
    series: [{ key: "refused", label: "refused", color: "d" }, { key: "late", label: "late", color: "c" },
             { key: "bad", label: "wrong", color: "e" }, { key: "denied", label: "no token", color: "a" }] }),
  queue: new Chart(by("chart-queue"), { title: "Waiting requests", format: formatCount, series: [{ key: "queue", label: "in queues", color: "a" }] }),
};
const LEVELS = { l1: "level 1", l2: "level 2", l3: "level 3" };
const changeCharts = {
  changes: new Chart(by("chart-changes"), { title: "Rows changed per second", format: formatCount, series: [{ key: "rowsChanged", label: "rows", color: "a" }] }),
  freshness: new Chart(by("chart-freshness"), { title: "From publishing to a level, p99", format: formatSeconds,
    series: Object.entries(LEVELS).map(([key, label]) => ({ key, label, color: `hit_${key}` })) }),
};
const models = new ModelList(by("models"));
const dialog = new TableDialog(get);
const tables = new TableList(by("tables"), by("table-filter"), by("tables-hint"), (name) => dialog.open(name, history, windowSeconds()));

const windowSeconds = () => Number(by("window").value);

function setState(state, text) {
  by("state").dataset.state = state;
  if (by("state-text").textContent !== text) by("state-text").textContent = text;
}

function notice(text, mild) {
  const box = by("notice");
  if (box.textContent !== text) box.textContent = text;
  box.classList.toggle("mild", Boolean(mild));
  box.hidden = text === "";
}

function tile(name, [value, unit], more, alarm) {
  return element("div", { class: alarm ? "tile alarm" : "tile" }, element("div", { class: "name" }, name),
                 element("div", { class: "value" }, value, element("small", {}, unit)), element("div", { class: "more" }, more));
}

function showTiles() {
  const { server, process } = history.latest;
  const now = history.last();
  if (!now) return;
  const recent = (share) => history.recentPercentile("total", "", share);
  const parts = shares(now.statuses) ?? {};
  const upper = (parts.hit_l1 ?? 0) + (parts.hit_l2 ?? 0);
  const refusedAll = Object.values(server.refused).reduce((all, count) => all + count, 0);
  const degraded = (parts.default_degraded ?? 0) + (parts.default_pending ?? 0);
  by("tiles").replaceChildren(
      tile("Requests", [countParts(now.http + now.grpc)[0], `${countParts(now.http + now.grpc)[1]}/s`],
           `HTTP ${formatCount(now.http)}, gRPC ${formatCount(now.grpc)}`),
      tile("Keys", [countParts(now.keys)[0], `${countParts(now.keys)[1]}/s`], `${formatCount(server.keys_in_flight)} in flight`),
      tile("Latency p99", secondsParts(recent(0.99)), `p50 ${formatSeconds(recent(0.5))}, p95 ${formatSeconds(recent(0.95))}`),
      tile("From memory", now.keys > 0 ? [(upper * 100).toFixed(1), "%"] : ["–", ""],
           degraded > 0 ? `${formatShare(degraded)} default rows` : "of the keys asked now"),
      tile("Refused", [countParts(now.refused)[0], `${countParts(now.refused)[1]}/s`], `${formatCount(refusedAll)} since the start`, now.refused > 0),
      tile("Memory", formatBytes(process.resident_bytes).split(" "), `${formatWhole(process.open_files)} files, ${process.threads} threads`),
      tile("CPU", [now.cpu.toFixed(now.cpu < 9.95 ? 2 : 1), "cores"], `${formatWhole(server.connections_http)} HTTP connections`));
}

function showCharts() {
  const window = windowSeconds();
  const samples = history.within(window);
  const points = (make) => samples.map((sample) => ({ time: sample.time, values: sample.gap ? null : make(sample) }));
  charts.requests.show(points((sample) => sample), window);
  charts.keys.show(points((sample) => sample), window);
  charts.refused.show(points((sample) => sample), window);
  charts.queue.show(points((sample) => sample), window);
  charts.share.show(points((sample) => shares(sample.statuses)), window);
  const [stage, model] = [by("stage").value, by("latency-model").value];
  charts.latency.show(points((sample) => {
    const counts = history.stageCounts(sample, stage, model);
    return Object.fromEntries(Object.entries(PERCENTILES).map(
        ([name, share]) => [name, percentile(counts, history.latest.latency_bucket_seconds, share)]));
  }), window);
}

// Only where rows change: most servers have no update stream.
function showChanges() {
  const { stream, updates } = history.latest;
  by("chart-changes").hidden = !stream && !updates?.changes;
  by("chart-freshness").hidden = !stream;
  by("stream-section").hidden = !stream;
  const window = windowSeconds();
  const samples = history.within(window);
  if (!by("chart-changes").hidden) {
    changeCharts.changes.show(samples.map((sample) => ({ time: sample.time, values: sample.gap ? null : sample })), window);
  }
  if (!stream) return;
  const p99 = (counts) => percentile(counts, stream.freshness_bucket_seconds, 0.99);
  changeCharts.freshness.show(samples.map((sample) => ({ time: sample.time, values: sample.gap ? null
    : Object.fromEntries(Object.entries(sample.freshness).map(([level, counts]) => [level, p99(counts)])) })), window);
  const parked = Object.values(stream.parked).reduce((all, count) => all + count, 0);
  const paused = Object.entries(stream.paused).map(([table, why]) => `${table} (${why.replace("_", " ")})`).join(", ");
  const facts = {
    State: stream.problem ? `not readable: ${stream.problem}` : stream.recovering ? "catching up after the start" : "reading",
    Lag: stream.problem ? "unknown" : `${formatCount(stream.lag_records)} records, ${formatSeconds(stream.lag_seconds)}`,
    "Publish to level 3, p99": formatSeconds(recentFreshness(history, "l3", 0.99)),
    Partitions: formatWhole(stream.partitions.length), Records: formatCount(stream.records),
    "Set aside": formatCount(parked), "Tables without a topic": formatWhole(stream.missing_topics.length),
  };
  if (paused) facts.Paused = paused;
  if (stream.stale_tables.length > 0) facts["Stale (records expired)"] = stream.stale_tables.join(", ");
  by("stream-facts").replaceChildren(...Object.entries(facts).map(([term, text]) => element("div", {}, element("dt", {}, term), element("dd", {}, text))));
}

// What Redis holds is not known; whether each of its servers answers is.
function redisFacts(level) {
  const facts = { Inserted: formatCount(level.insertions), Updated: formatCount(level.updates), Errors: formatCount(level.errors) };
  return { ...facts, ...nodeFacts(level) };
}

function nodeFacts(level) {
  return Object.fromEntries((level.nodes ?? []).map((node) => [node.address, node.bypassed ? "bypassed: it does not answer" : "answers"]));
}

function levelFacts(level) {
  if (level.kind === "redis") return redisFacts(level);
  const facts = { Rows: formatCount(level.rows), Bytes: formatBytes(level.bytes) };
  if (level.bytes_max !== undefined) {
    facts.Budget = formatBytes(level.bytes_max);
    facts.Evictions = formatRate(history.last()?.evictions[level.name] ?? 0);
    facts["Absent keys"] = formatCount(level.absent_rows);
  } else {
    facts["Free disk"] = formatBytes(level.free_bytes);
    facts["Damaged reads"] = formatCount(level.damaged_reads);
    facts["Disk errors"] = formatCount(level.background_errors);
  }
  facts.Errors = formatCount(level.errors);
  return { ...facts, ...nodeFacts(level) };
}

function showLevels() {
  by("levels").replaceChildren(...history.latest.levels.map((level) => {
    const facts = Object.entries(levelFacts(level)).map(([term, text]) => element("div", {}, element("dt", {}, term), element("dd", {}, text)));
    const used = level.bytes_max !== undefined ? level.bytes / Math.max(1, level.bytes_max)
                                               : level.bytes / Math.max(1, level.bytes + level.free_bytes);
    const trouble = level.errors > 0 || level.damaged_reads > 0;
    const badge = !level.up ? ["bad", "down"] : trouble ? ["warn", "up, had errors"] : ["good", "up"];
    return element("article", { class: `level c-${level.name}` },
                   element("header", {}, element("h3", {}, LEVEL_NAMES[level.name]), element("span", { class: "kind" }, LEVEL_KINDS[level.kind] ?? level.kind),
                           element("span", { class: `badge ${badge[0]}` }, badge[1])),
                   ...(level.bytes === undefined ? [] : [meter([[level.name, used]], `${formatShare(Math.min(1, used))} of ${level.bytes_max !== undefined ? "the budget" : "the disk"}`)]),
                   element("dl", { class: "facts" }, ...facts));
  }));
}

function showModelChoice() {
  const select = by("latency-model");
  const names = ["", ...history.latest.models.map((model) => model.name)];
  if (names.length === select.options.length && names.every((name, i) => select.options[i].value === name)) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name || "all")));
  select.value = names.includes(chosen) ? chosen : "";
}

// A list that has not changed is not read out again.
function showProblems(problems) {
  const list = by("problems");
  list.hidden = problems.length === 0;
  if ([...list.children].map((item) => item.textContent).join("\n") === problems.join("\n")) return;
  list.replaceChildren(...problems.map((text) => element("li", {}, text)));
}

function showAll() {
  const { server, unix_ms: now } = history.latest;
  const { problems } = history.latest;
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  if (problems.length > 0) setState("problem", `${server.state}, ${count}`);
  else setState(server.state, server.state);
  showProblems(problems);
  by("about").textContent = `hps ${server.hps}, up ${formatAge((now - server.start_unix_ms) / 1000)}` +
      (server.state === "ready" ? `, ready after ${formatSeconds(server.ready_after_seconds)}` : "");
  document.title = `hps: ${problems.length > 0 ? count : server.state}`;
  showModelChoice();
  showTiles();
  showCharts();
  showLevels();
  showChanges();
  models.show(history);
  tables.show(history);
  dialog.show(history, windowSeconds());
}

function showFailure(answer) {
  failures += 1;
  history.addGap();
  by("token-form").hidden = !answer.unauthorized;
  if (answer.unauthorized) {
    setState("unreachable", "token needed");
    notice(token ? "The server refused this token." : "", true);
    return;
  }
  setState("unreachable", "unreachable");
  document.title = "hps: unreachable";
  by("main").classList.add("stale");
  notice(`No answer from the server: ${answer.error}. What you see is from before; asking again every ${formatSeconds(retrySeconds())}.`);
}

const retrySeconds = () => Math.max(Number(by("refresh").value) || 2, Math.min(10, failures));

async function refresh() {
  clearTimeout(timer);
  const answer = await get("/api/overview");
  if (answer.json) {
    failures = 0;
    by("token-form").hidden = true;
    by("main").classList.remove("stale");
    const isNew = history.isNew(answer.json);
    history.add(answer.json);
    if (isNew) {
      const past = await get("/api/history");
      if (past.json) history.load(past.json);
    }
    notice(answer.json.server.state === "draining" ? "The server drains: it answers what it has accepted, then it ends." : "", true);
    showAll();
  } else {
    showFailure(answer);
  }
  schedule();
}

// A page that nobody sees asks for nothing.
function schedule() {
  clearTimeout(timer);
  const seconds = Number(by("refresh").value);
  if (seconds === 0 || document.hidden) return;
  timer = setTimeout(refresh, (failures > 0 ? retrySeconds() : seconds) * 1000);
}

function setTheme(choice) {
  const dark = choice === "dark" || (choice === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

by("theme").value = localStorage.getItem("hps-theme") ?? "auto";
setTheme(by("theme").value);
by("theme").addEventListener("change", () => {
  localStorage.setItem("hps-theme", by("theme").value);
  setTheme(by("theme").value);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(by("theme").value));
by("refresh").addEventListener("change", refresh);
for (const id of ["window", "stage", "latency-model"]) by(id).addEventListener("change", () => { if (history.latest) showAll(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
by("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = by("token").value;
  sessionStorage.setItem("hps-token", token);
  by("token").value = "";
  refresh();
});
refresh();
