// Turns successive overviews (sums since the process began) into rates, percentiles and shares, and
// keeps the last quarter of an hour of them. Also how numbers are written for people.

export const STATUSES = ["hit_l1", "hit_l2", "hit_l3", "absent", "default_pending", "default_degraded"];
export const STATUS_LABELS = {
  hit_l1: "level 1", hit_l2: "level 2", hit_l3: "level 3", absent: "absent",
  default_pending: "default, pending", default_degraded: "default, degraded",
};
const KEEP_SECONDS = 900;
const TABLE_HISTORY_MAX = 200;

const sum = (object) => Object.values(object ?? {}).reduce((total, count) => total + count, 0);
const difference = (now, before) => Math.max(0, (now ?? 0) - (before ?? 0));

// Of counts per bucket; linear inside a bucket; null without observations.
export function percentile(counts, bounds, share) {
  const total = counts.reduce((all, count) => all + count, 0);
  if (total === 0) return null;
  let left = share * total;
  for (let i = 0; i < counts.length; ++i) {
    if (counts[i] >= left && counts[i] > 0) {
      const low = i === 0 ? 0 : bounds[i - 1];
      return i >= bounds.length ? low : low + (bounds[i] - low) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return bounds[bounds.length - 1];
}

// Shares of STATUSES in counts by status, or null.
export function shares(counts) {
  const total = STATUSES.reduce((all, status) => all + (counts[status] ?? 0), 0);
  if (total === 0) return null;
  return Object.fromEntries(STATUSES.map((status) => [status, (counts[status] ?? 0) / total]));
}

function statusDeltas(table, former) {
  return Object.fromEntries(
      STATUSES.map((status) => [status, difference(table.keys?.[status], former?.keys?.[status])]));
}

function stageDeltas(model, former) {
  const stages = {};
  for (const [stage, histogram] of Object.entries(model.stages)) {
    const before = former?.stages?.[stage]?.counts;
    stages[stage] = histogram.counts.map((count, i) => difference(count, before?.[i]));
  }
  return stages;
}

export class History {
  constructor() {
    this.samples = [];
    this.latest = null;
  }

  // Whether an overview is the first one of its process.
  isNew(overview) {
    return this.latest?.server.start_unix_ms !== overview.server.start_unix_ms;
  }

  // Takes what the server has kept of the time before this page asked: sums over all models and tables.
  load(past) {
    const loaded = past.samples.slice(1).map((now, i) => [now, past.samples[i]])
      .filter(([now, before]) => now.unix_ms > before.unix_ms)  // the clock may have been set back
      .map(([now, before]) => this.pastSample(now, before, past));
    const from = loaded[0]?.time ?? Infinity;
    this.samples = [...this.samples.filter((sample) => sample.time < from), ...loaded];
  }

  pastSample(now, before, { key_statuses: statuses, stages }) {
    const seconds = (now.unix_ms - before.unix_ms) / 1000;
    const rate = (count, former) => difference(count, former) / seconds;
    const deltas = (counts, former) => counts.map((count, i) => difference(count, former[i]));
    const keys = deltas(now.keys, before.keys);
    const freshness = now.freshness.map((counts, i) => deltas(counts, before.freshness[i]));
    return {
      time: now.unix_ms / 1000,
      http: rate(now.requests.http, before.requests.http), grpc: rate(now.requests.grpc, before.requests.grpc),
      refused: rate(now.refused, before.refused), bad: rate(now.bad_requests, before.bad_requests),
      late: rate(now.deadlines_exceeded, before.deadlines_exceeded), denied: rate(now.auth_failures, before.auth_failures),
      cpu: rate(now.cpu_seconds, before.cpu_seconds), queue: now.queue_depth, keys: sum(keys) / seconds,
      statuses: Object.fromEntries(statuses.map((status, i) => [status, keys[i]])),
      stages: Object.fromEntries(stages.map((stage, i) => [stage, deltas(now.stages[i], before.stages[i])])),
      rowsChanged: rate(now.rows_changed, before.rows_changed),
      freshness: { l1: freshness[0], l2: freshness[1], l3: freshness[2] },
      models: {}, tables: {}, evictions: {},
    };
  }

  // Drops what can't be compared: another process has other sums.
  add(overview) {
    const former = this.latest;
    this.latest = overview;
    if (former === null || former.server.start_unix_ms !== overview.server.start_unix_ms) return;
    const seconds = (overview.unix_ms - former.unix_ms) / 1000;
    if (seconds <= 0) return;
    this.samples.push(this.sample(overview, former, seconds));
    while (this.samples[0].time < overview.unix_ms / 1000 - KEEP_SECONDS) this.samples.shift();
  }

  // A gap: nothing is known until the next overview.
  addGap() {
    if (this.samples.length > 0 && !this.samples.at(-1).gap) {
      this.samples.push({ time: Date.now() / 1000, gap: true });
    }
  }

  sample(overview, former, seconds) {
    const rate = (now, before) => difference(now, before) / seconds;
    const formerModels = new Map(former.models.map((model) => [model.name, model]));
    const formerTables = new Map(former.tables.map((table) => [table.name, table]));
    const sample = {
      time: overview.unix_ms / 1000,
      http: rate(overview.server.requests.http, former.server.requests.http),
      grpc: rate(overview.server.requests.grpc, former.server.requests.grpc),
      refused: rate(sum(overview.server.refused), sum(former.server.refused)),
      bad: rate(sum(overview.server.bad_requests), sum(former.server.bad_requests)),
      late: rate(sum(overview.server.deadlines_exceeded), sum(former.server.deadlines_exceeded)),
      denied: rate(overview.server.auth_failures, former.server.auth_failures),
      cpu: rate(overview.process.cpu_seconds, former.process.cpu_seconds),
      inFlight: overview.server.keys_in_flight,
      queue: 0, keys: 0, models: {}, tables: {}, statuses: Object.fromEntries(STATUSES.map((s) => [s, 0])),
      evictions: {},
    };
    for (const model of overview.models) {
      const before = formerModels.get(model.name);
      sample.queue += model.queue_depth;
      sample.models[model.name] = {
        requests: rate(model.requests, before?.requests), keys: rate(model.keys, before?.keys),
        failed: rate(model.requests_failed, before?.requests_failed),
        batches: rate(model.batches, before?.batches), stages: stageDeltas(model, before),
      };
    }
    const keepTables = overview.tables.length <= TABLE_HISTORY_MAX;
    for (const table of overview.tables) {
      const deltas = statusDeltas(table, formerTables.get(table.name));
      for (const status of STATUSES) sample.statuses[status] += deltas[status];
      const total = sum(deltas);
      sample.keys += total / seconds;
      if (keepTables) sample.tables[table.name] = { rate: total / seconds, deltas };
    }
    sample.rowsChanged = rate(overview.updates?.rows_upserted + overview.updates?.rows_deleted,
                              former.updates?.rows_upserted + former.updates?.rows_deleted);
    sample.freshness = {};
    for (const [level, histogram] of Object.entries(overview.stream?.freshness ?? {})) {
      const before = former.stream?.freshness?.[level]?.counts;
      sample.freshness[level] = histogram.counts.map((count, i) => difference(count, before?.[i]));
    }
    for (const level of overview.levels) {
      const before = former.levels.find((other) => other.name === level.name);
      sample.evictions[level.name] = rate(level.evictions, before?.evictions);
    }
    return sample;
  }

  last() {
    const sample = this.samples.at(-1);
    return sample && !sample.gap ? sample : null;
  }

  // Samples of the last `seconds`, oldest first.
  within(seconds) {
    if (this.samples.length === 0) return [];
    const from = this.samples.at(-1).time - seconds;
    return this.samples.filter((sample) => sample.time >= from);
  }

  // Bucket counts of a stage in a sample, over all models or one.
  stageCounts(sample, stage, model) {
    const bounds = this.latest.latency_bucket_seconds;
    const counts = new Array(bounds.length + 1).fill(0);
    if (sample.stages && !model) return sample.stages[stage];
    for (const [name, figures] of Object.entries(sample.models ?? {})) {
      if (model && name !== model) continue;
      (figures.stages[stage] ?? []).forEach((count, i) => { counts[i] += count; });
    }
    return counts;
  }

  // The last ten seconds' percentile: one sample of a quiet server says little.
  recentPercentile(stage, model, share) {
    if (this.latest === null) return null;
    const bounds = this.latest.latency_bucket_seconds;
    const counts = new Array(bounds.length + 1).fill(0);
    for (const sample of this.within(10)) {
      if (sample.gap) continue;
      this.stageCounts(sample, stage, model).forEach((count, i) => { counts[i] += count; });
    }
    return percentile(counts, bounds, share);
  }
}

// The last ten seconds' percentile of the time from publishing to a level, over all tables.
export function recentFreshness(history, level, share) {
  const bounds = history.latest?.stream?.freshness_bucket_seconds;
  if (!bounds) return null;
  const counts = new Array(bounds.length + 1).fill(0);
  for (const sample of history.within(10)) {
    (sample.freshness?.[level] ?? []).forEach((count, i) => { counts[i] += count; });
  }
  return percentile(counts, bounds, share);
}

function scaled(value, step, units, digits = 3) {
  let unit = 0;
  while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    ++unit;
  }
  const text = value === 0 ? "0" : Number(value.toPrecision(digits)).toString();
  return [text, units[unit]];
}

const join = ([text, unit]) => (unit ? `${text} ${unit}` : text);
export const countParts = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
// What a level does not know of itself is a dash.
const ifKnown = (format) => (value) => (value === undefined ? "–" : format(value));
export const formatCount = ifKnown((value) => join(countParts(value)));
export const formatWhole = ifKnown((value) => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f"));
export const formatRate = (value) => `${formatCount(value)}/s`;
export const formatBytes = ifKnown((value) => join(scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])));
export const formatShare = (value) => (value === null ? "–" : `${(value * 100).toFixed(value > 0.9995 || value === 0 ? 0 : 1)} %`);

export function secondsParts(value) {
  if (value === null) return ["–", ""];
  if (value < 1e-3) return [Number((value * 1e6).toPrecision(3)).toString(), "µs"];
  if (value < 1) return [Number((value * 1e3).toPrecision(3)).toString(), "ms"];
  return [Number(value.toPrecision(3)).toString(), "s"];
}
export const formatSeconds = (value) => join(secondsParts(value));

export function formatAge(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}
