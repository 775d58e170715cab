// Charts over time as SVG: drawn at the size they have, with a legend that hides layers, and a cursor that tells values,
// moved by pointer, finger or arrow keys.

import { html, replace, svg } from "./dom.js";
import { numberTicks, timeTicks } from "./format.js";

const TOP = 10, BOTTOM = 24, RIGHT = 12;
const LETTER = 6.7; // width of a digit on an axis

/**
 * A chart. `draw` takes
 *   layers: [{ kind: "band" | "line" | "dots" | "bars", name, label, points: [[x, y] or, for a band, [x, low, high]] }],
 *           where a y of null is a gap, `name` a class of the style sheet, and layers of one label share a legend entry;
 *   rows: [{ x, title, cells: [[name, label, text]] }] for the cursor, in order of x;
 *   dated: whether x is a time; now: where the future begins; zero: whether the axis includes it; unit: words of ticks.
 */
export class Chart {
  constructor(label, height) {
    this.hidden = new Set();
    this.height = height;
    this.legend = html("div", { class: "legend", role: "group", "aria-label": `Layers of: ${label}` });
    this.area = svg("svg", { class: "chart", role: "img", tabindex: "0", "aria-label": `${label}. Arrow keys move a cursor.`, height });
    this.tip = html("div", { class: "tip", hidden: true });
    this.spoken = html("p", { class: "unseen", "aria-live": "polite" });
    const plot = html("div", { class: "plot" }, this.area, this.tip);
    this.node = html("div", { class: "figure" }, this.legend, plot, this.spoken);
    this.at = null;
    new ResizeObserver(() => this.render()).observe(plot);
    this.area.addEventListener("pointermove", (event) => this.point(event));
    this.area.addEventListener("pointerdown", (event) => this.point(event));
    this.area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.cursor(null));
    this.area.addEventListener("blur", () => this.cursor(null));
    this.area.addEventListener("keydown", (event) => this.key(event));
  }

  draw(spec) {
    this.spec = spec;
    const entries = new Map(spec.layers.filter((layer) => layer.label).map((layer) => [layer.label, layer]));
    replace(this.legend, [...entries.values()].map((layer) => html("button", {
      type: "button", "data-key": layer.label, "aria-pressed": String(!this.hidden.has(layer.label)),
      onclick: () => this.toggle(layer.label),
    }, html("span", { class: `swatch ${layer.kind} ${layer.name}`, "aria-hidden": "true" }), layer.label)));
    this.render();
  }

  toggle(label) {
    if (!this.hidden.delete(label)) this.hidden.add(label);
    this.draw(this.spec);
  }

  render() {
    const width = this.area.parentNode.clientWidth;
    if (!width || !this.spec) return;
    const layers = this.spec.layers.filter((layer) => !this.hidden.has(layer.label));
    const xs = this.spec.rows.map((row) => row.x);
    const values = layers.flatMap((layer) => layer.points.flatMap(([, ...ys]) => ys)).filter((y) => y !== null);
    const [low, high] = range(values, this.spec.zero);
    const yTicks = numberTicks(low, high, this.height / 46, this.spec.unit);
    const left = 12 + LETTER * Math.max(...yTicks.map(([, words]) => words.length));
    const [from, to] = span(xs, layers.some((layer) => layer.kind === "bars"));
    const x = (value) => left + ((value - from) / (to - from)) * (width - left - RIGHT);
    const y = (value) => this.height - BOTTOM - ((value - low) / (high - low)) * (this.height - TOP - BOTTOM);
    const count = (width - left) / 70;
    const xTicks = this.spec.dated ? timeTicks(from, to, count) : numberTicks(from, to, count).filter(([at]) => Number.isInteger(at));
    this.scale = { x, y, left, width };
    this.area.setAttribute("width", width);
    const nodes = yTicks.map(([at, words]) => svg("g", { class: at === 0 && low < 0 ? "tick base" : "tick" },
      svg("line", { x1: left, x2: width - RIGHT, y1: y(at), y2: y(at) }),
      svg("text", { x: left - 7, y: y(at) + 4, "text-anchor": "end" }, words)));
    for (const [at, words] of xTicks) {
      const half = (LETTER * words.length) / 2;
      if (x(at) + half < width && x(at) - half > left - 20)
        nodes.push(svg("text", { class: "when", x: x(at), y: this.height - 6, "text-anchor": "middle" }, words));
    }
    const { now } = this.spec;
    if (now !== undefined) nodes.push(
      svg("rect", { class: "future", x: x(now), y: TOP, width: Math.max(0, width - RIGHT - x(now)), height: this.height - TOP - BOTTOM }),
      svg("line", { class: "now", x1: x(now), x2: x(now), y1: TOP, y2: this.height - BOTTOM }));
    const room = xs.length > 1 ? (x(to) - x(from)) / xs.length : 12;
    nodes.push(...layers.map((layer) => shape(layer, x, y, room)));
    this.mark = svg("g", { class: "cursor" });
    this.area.replaceChildren(...nodes, this.mark);
    if (this.at !== null) this.cursor(Math.min(this.at, xs.length - 1));
  }

  point(event) {
    if (!this.scale || !this.spec.rows.length) return;
    const here = event.clientX - this.area.getBoundingClientRect().left;
    let best = 0;
    this.spec.rows.forEach((row, i) => {
      if (Math.abs(this.scale.x(row.x) - here) < Math.abs(this.scale.x(this.spec.rows[best].x) - here)) best = i;
    });
    this.cursor(best);
  }

  key(event) {
    const last = this.spec.rows.length - 1, at = this.at ?? last + 1;
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, Escape: null }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this.cursor(next === null ? null : Math.max(0, Math.min(last, next)));
    const row = next === null ? null : this.spec.rows[this.at];
    this.spoken.textContent = row ? [row.title, ...row.cells.map(([, label, text]) => `${label} ${text}`)].join(", ") : "";
  }

  cursor(at) {
    this.at = at;
    this.tip.hidden = at === null;
    this.mark?.replaceChildren();
    if (at === null) return;
    const row = this.spec.rows[at], { x, width, left } = this.scale;
    this.mark.append(svg("line", { x1: x(row.x), x2: x(row.x), y1: TOP, y2: this.height - BOTTOM }));
    for (const layer of this.spec.layers) {
      if (this.hidden.has(layer.label) || layer.kind === "band" || layer.kind === "bars") continue;
      const found = layer.points.find(([px, py]) => px === row.x && py !== null);
      if (found) this.mark.append(svg("circle", { class: layer.name, cx: x(row.x), cy: this.scale.y(found[1]), r: 4 }));
    }
    replace(this.tip, html("strong", {}, row.title), html("dl", {}, row.cells.map(([name, label, text]) => [
      html("dt", {}, html("span", { class: `swatch line ${name}` }), label), html("dd", {}, text)]).flat()));
    const beside = this.tip.offsetWidth + 14;
    const right = x(row.x) < (left + width) / 2;
    this.tip.style.left = `${Math.max(0, Math.min(width - this.tip.offsetWidth, right ? x(row.x) + 14 : x(row.x) - beside))}px`;
  }
}

function range(values, zero) {
  const all = zero ? [...values, 0] : values;
  let low = Math.min(...all), high = Math.max(...all);
  if (!all.length) [low, high] = [0, 1];
  if (low === high) [low, high] = zero ? [Math.min(0, low), Math.max(0, high) || 1] : [low - 1, high + 1];
  const room = 0.06 * (high - low);
  return [zero && low === 0 ? 0 : low - (low >= 0 && low < room ? low : room), zero && high === 0 ? 0 : high + room];
}

function span(xs, wide) {
  if (!xs.length) return [0, 1];
  const from = xs[0], to = xs[xs.length - 1];
  const edge = from === to ? 1 : wide ? (to - from) / xs.length / 2 : 0;
  return [from - edge, to + edge];
}

function shape({ kind, name, points }, x, y, room) {
  if (kind === "dots") return svg("g", { class: `dots ${name}` },
    points.filter(([, v]) => v !== null).map(([at, v]) => svg("circle", { cx: x(at), cy: y(v), r: Math.max(1.4, Math.min(2.6, room / 3)) })));
  if (kind === "bars") return svg("g", { class: `bars ${name}` },
    points.filter(([, v]) => v !== null).map(([at, v]) => svg("rect", {
      x: x(at) - Math.max(1, 0.36 * room), width: Math.max(2, 0.72 * room), y: y(Math.max(0, v)),
      height: Math.max(0.5, Math.abs(y(v) - y(0))) })));
  const runs = pieces(points);
  const place = (at, v) => `${x(at).toFixed(1)} ${y(v).toFixed(1)}`;
  if (kind === "band") {
    const around = (run) => `M${run.map(([at, , high]) => place(at, high)).join("L")}L${run.toReversed().map(([at, low]) => place(at, low)).join("L")}Z`;
    return svg("path", { class: `band ${name}`, d: runs.map(around).join("") });
  }
  // A value between two gaps is a dot: a path of one point with round ends.
  return svg("path", { class: `line ${name}`, d: runs.map((run) => `M${run.map(([at, v]) => place(at, v)).join("L")}${run.length === 1 ? "h0" : ""}`).join("") });
}

/** Runs of points without gaps. */
function pieces(points) {
  const runs = [[]];
  for (const point of points) {
    if (point.every((value) => value !== null)) runs[runs.length - 1].push(point);
    else if (runs[runs.length - 1].length) runs.push([]);
  }
  return runs.filter((run) => run.length);
}

/** A line of few pixels: what came, over what was forecast. */
export function sparkline(layers, width, height, label) {
  const values = layers.flatMap(([, ys]) => ys).filter((v) => v !== null);
  const [low, high] = range(values, false);
  const count = Math.max(...layers.map(([, ys]) => ys.length), 2);
  const x = (i) => 1 + (i / (count - 1)) * (width - 2), y = (v) => height - 2 - ((v - low) / (high - low)) * (height - 4);
  return svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    layers.map(([name, ys]) => shape({ kind: "line", name, points: ys.map((v, i) => [i, v]) }, x, y, 1)));
}
