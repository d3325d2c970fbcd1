// Time charts in SVG: lines, or shares that are stacked to 100 %. Axes with units, a legend with the
// values of now, a read-out under the pointer or, with the arrow keys, the keyboard.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 52, right: 10, top: 8, bottom: 20 };
const GRID_LINES = 4;
const TIME_LABEL_WIDTH = 72;  // of the widest one and a half, as the oldest may begin where it stands

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The smallest number above `value` whose quarters are short.
function niceMax(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 4, 6, 8, 10]) if (value <= step * power * 1.0001) return step * power;
  return 10 * power;
}

function timeText(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function timeStep(window, width) {
  let step = window <= 60 ? 15 : window <= 300 ? 60 : 180;
  while (step < window && (width * step) / window < TIME_LABEL_WIDTH) step *= 2;
  return step;
}

export class Chart {
  // `series`: [{key, label, color (class)}], drawn in this order, stacked from below when `stacked`.
  // `format` writes a value. `help` is the chart's sentence for those who don't see it.
  constructor(figure, { title, series, format, stacked = false, help = "" }) {
    Object.assign(this, { figure, title, series, format, stacked, help });
    this.points = [];
    this.window = 300;
    this.at = null;  // index of the point that is read out; null = the last
    this.when = element("span", { class: "when" });
    const head = element("figcaption", { class: "panel-head" }, element("span", { class: "title" }, title), this.when);
    this.svg = shape("svg", { class: "plot", tabindex: "0", role: "img" });
    this.legend = element("ul", { class: "legend" });
    this.values = new Map();
    for (const one of series) {
      const value = element("span", { class: "value" });
      this.values.set(one.key, value);
      this.legend.append(element("li", {}, element("span", { class: `swatch c-${one.color}`, "aria-hidden": "true" }), one.label, value));
    }
    figure.prepend(head);
    figure.append(this.svg, this.legend);
    this.svg.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.select(null));
    this.svg.addEventListener("blur", () => this.select(null));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // `points`: [{time (unix seconds), values: {key: number or null} or null (a gap)}], by time.
  show(points, window) {
    const keptTime = this.at === null ? null : this.points[this.at]?.time;
    this.points = points;
    this.window = window;
    const found = keptTime === null ? -1 : points.findIndex((point) => point.time === keptTime);
    this.at = found < 0 ? null : found;
    this.draw();
  }

  onKey(event) {
    const last = this.points.length - 1;
    const from = this.at ?? last;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined || last < 0) return;
    if (to !== null) event.preventDefault();
    this.select(to === null ? null : Math.min(last, Math.max(0, to)));
    this.svg.setAttribute("aria-label", this.description());
  }

  pointAt(x) {
    if (this.points.length === 0) return;
    const wanted = this.endTime() - this.window + ((x - MARGIN.left) / this.innerWidth()) * this.window;
    let best = 0;
    this.points.forEach((point, i) => {
      if (Math.abs(point.time - wanted) < Math.abs(this.points[best].time - wanted)) best = i;
    });
    this.select(best);
  }

  select(index) {
    this.at = index;
    this.draw();
  }

  innerWidth() {
    return Math.max(10, this.width - MARGIN.left - MARGIN.right);
  }

  endTime() {
    return this.points.at(-1)?.time ?? Date.now() / 1000;
  }

  maximum() {
    if (this.stacked) return 1;
    let most = 0;
    for (const point of this.points) {
      for (const one of this.series) most = Math.max(most, point.values?.[one.key] ?? 0);
    }
    return niceMax(most);
  }

  draw() {
    this.width = this.svg.clientWidth;
    this.height = this.svg.clientHeight;
    if (this.width === 0) return;
    const max = this.maximum();
    const bottom = this.height - MARGIN.bottom;
    const x = (time) => MARGIN.left + (1 - (this.endTime() - time) / this.window) * this.innerWidth();
    const y = (value) => bottom - (value / max) * (bottom - MARGIN.top);
    const parts = [...this.axes(x, y, max)];
    const runs = this.runs();
    if (this.stacked) this.bands(runs, x, y, parts);
    else this.lines(runs, x, y, parts);
    if (!this.points.some((point) => point.values !== null)) {
      parts.push(shape("text", { class: "nothing", x: this.width / 2, y: this.height / 2, "text-anchor": "middle" },
                       this.points.length === 0 ? "waiting for two readings" : "nothing in this window"));
    }
    if (this.at !== null && this.points[this.at]) {
      const at = x(this.points[this.at].time);
      parts.push(shape("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
    }
    this.svg.replaceChildren(...parts);
    this.readOut();
  }

  *axes(x, y, max) {
    for (let i = 0; i <= GRID_LINES; ++i) {
      const value = (max * i) / GRID_LINES;
      yield shape("line", { class: i === 0 ? "axis" : "grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y(value), y2: y(value) });
      yield shape("text", { x: MARGIN.left - 7, y: y(value) + 3.5, "text-anchor": "end" }, this.axisText(value));
    }
    const step = timeStep(this.window, this.innerWidth());
    for (let ago = 0; ago <= this.window; ago += step) {
      const text = ago === 0 ? "now" : ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`;
      yield shape("text", { x: x(this.endTime() - ago), y: this.height - 5,
                            "text-anchor": ago === 0 ? "end" : ago === this.window ? "start" : "middle" }, text);
    }
  }

  axisText(value) {
    if (value === 0) return "0";
    return this.stacked ? `${Math.round(value * 100)} %` : this.format(value);
  }

  // Points without a gap between them.
  runs() {
    const runs = [[]];
    for (const point of this.points) {
      if (point.values === null) runs.push([]);
      else runs.at(-1).push(point);
    }
    return runs.filter((run) => run.length > 0);
  }

  lines(runs, x, y, parts) {
    for (const one of this.series) {
      let path = "";
      for (const run of runs) {
        let pen = "M";
        for (const point of run) {
          const value = point.values[one.key];
          if (value === null || value === undefined) {
            pen = "M";
            continue;
          }
          path += `${pen}${x(point.time).toFixed(1)} ${y(value).toFixed(1)}`;
          pen = "L";
        }
        if (run.length === 1 && pen === "L") path += "h1";
      }
      if (path) parts.push(shape("path", { class: `series c-${one.color}`, d: path }));
    }
  }

  bands(runs, x, y, parts) {
    for (const run of runs) {
      const floors = run.map(() => 0);
      for (const one of this.series) {
        const tops = run.map((point, i) => floors[i] + (point.values[one.key] ?? 0));
        if (tops.some((top, i) => top > floors[i])) {
          const upper = run.map((point, i) => `${x(point.time).toFixed(1)} ${y(tops[i]).toFixed(1)}`);
          const lower = run.map((point, i) => `${x(point.time).toFixed(1)} ${y(floors[i]).toFixed(1)}`).reverse();
          parts.push(shape("path", { class: `band c-${one.color}`, d: `M${upper.join("L")}L${lower.join("L")}Z` }));
        }
        tops.forEach((top, i) => { floors[i] = top; });
      }
    }
  }

  readPoint() {
    return this.at === null ? this.points.at(-1) : this.points[this.at];
  }

  readOut() {
    const point = this.readPoint();
    this.when.textContent = this.at !== null && point ? timeText(point.time) : "now";
    for (const one of this.series) {
      const value = point?.values?.[one.key];
      this.values.get(one.key).textContent = value === null || value === undefined ? "–" : this.format(value);
    }
    if (document.activeElement !== this.svg) this.svg.setAttribute("aria-label", this.description());
  }

  description() {
    const point = this.readPoint();
    const when = this.at === null || !point ? "now" : `at ${timeText(point.time)}`;
    const values = this.series.map((one) => `${one.label} ${this.values.get(one.key).textContent}`).join(", ");
    return `${this.title}, ${when}: ${values}. ${this.help} Arrow keys move through time.`;
  }
}

// A bar of parts: [[class, share, what it is], ...].
export function meter(parts, label) {
  const bar = element("span", { class: "meter", role: "img", "aria-label": label, title: label });
  for (const [color, share] of parts) {
    if (!(share > 0)) continue;
    const segment = element("span", { class: `segment c-${color}` });
    segment.style.width = `${Math.min(100, share * 100)}%`;
    bar.append(segment);
  }
  return bar;
}
