// One series: what came, what had been forecast, what is forecast now, and how much of it is its own.

import * as api from "./api.js";
import { Chart } from "./charts.js";
import { html, replace } from "./dom.js";
import { beside, fixed, moment, number, percent, signed, weekday, when, whole } from "./format.js";
import { card, empty, gain, home, table, tile } from "./parts.js";

const LEVELS = [95, 80, 50];
const RECENT = 42; // rows of history that are shown at first, or six windows

export class Series {
  constructor(id) {
    this.id = id;
    this.title = `${id} · aru`;
    this.about = html("p", { class: "about" });
    this.tiles = html("div", { class: "tiles" });
    this.history = new Chart(`Values and forecasts of ${id}`, 330);
    this.local = new Chart(`Contribution of the local model to forecasts of ${id}`, 170);
    this.missing = html("div");
    this.all = false;
    this.extent = html("div", { class: "choice", role: "group", "aria-label": "How much history to show" });
    this.memory = html("div");
    this.future = html("div", { class: "even" });
  }

  load(signal) {
    return api.series(this.id, signal);
  }

  build() {
    return [
      html("nav", { "aria-label": "Way back" }, html("a", { href: home() }, "← All series")),
      html("h1", {}, this.id),
      this.about,
      this.tiles,
      card("Values and forecasts", "Past forecasts were made one window ahead, before any of its values came.", this.extent, this.history.node, this.missing),
      html("div", { class: "columns uneven" },
        card("What the local model adds", "Mean of the adapted forecast minus that of the global one.", this.local.node),
        card("What it remembers", "Observations that the local statistics still weigh, by aging factor.", this.memory)),
      card("Next steps", null, this.future),
    ];
  }

  update(data) {
    const { accuracy, forecast, model } = data;
    const recent = Math.max(RECENT, 6 * model.h);
    const history = this.all ? data.history : data.history.slice(-recent);
    this.showExtent(recent, data);
    const values = [...data.history, ...(forecast ?? [])].flatMap((row) => [row.y, row.median, row.hi_80, row.hi_95]);
    this.exact = beside([data.y, ...values]);
    this.finer = beside([data.y, ...values], 1);
    this.about.textContent = `Latest row ${weekday(data.ds)}, ${whole(data.observations)} observations, ${model.name}, ${model.h} steps ahead`;
    replace(this.tiles,
      tile("Latest value", this.exact(data.y), when(data.ds)),
      tile("Error, adapted", percent(accuracy?.nd), `global forecast ${percent(accuracy?.nd_global)}`),
      tile("By adapting", gain(accuracy), "change of the error"),
      tile("In 80 % interval", percent(accuracy?.coverage_80), accuracy ? `of ${whole(accuracy.observations)} observations` : "not scored yet"),
      tile("Drift", drift(data.drift), data.drift ? `error ${percent(data.drift.error_latest)}, was ${percent(data.drift.error_before)}` : "not known yet"),
      tile("Local share", percent(share(forecast)), "of the forecast now"));
    this.showHistory({ ...data, history });
    this.showLocal(history, forecast ?? []);
    this.showMemory(data);
    this.showFuture(forecast);
    return true;
  }

  showExtent(recent, data) {
    const option = (all, count) => html("button", { type: "button", "data-key": `extent ${all}`, "aria-pressed": String(this.all === all),
      onclick: () => { this.all = all; this.update(data); } }, `${all ? "All" : "Latest"} ${count}`);
    this.extent.hidden = data.history.length <= recent;
    replace(this.extent, option(false, recent), option(true, data.history.length));
  }

  showHistory({ history, forecast, forecast_missing: missing, monitored, drift: found }) {
    const past = (...names) => history.map((row) => [moment(row.ds), ...names.map((name) => row[name])]);
    const next = (...names) => (forecast ?? []).map((row) => [moment(row.ds), ...names.map((name) => row[name])]);
    const last = history.length ? moment(history[history.length - 1].ds) : undefined;
    this.history.draw({
      dated: typeof (history[0] ?? forecast?.[0])?.ds === "string",
      now: forecast ? last : undefined,
      layers: [
        { kind: "band", name: "past80", label: "Past 80 % interval", points: past("lo_80", "hi_80") },
        ...LEVELS.map((level) => ({ kind: "band", name: `fan${level}`, label: `${level} %`, points: next(`lo_${level}`, `hi_${level}`) })),
        { kind: "line", name: "global", label: "Global median", points: [...past("median_global"), ...next("median_global")] },
        { kind: "line", name: "adapted", label: "Adapted median", points: [...past("median"), ...next("median")] },
        { kind: "line", name: "observed", label: "Observed", points: past("y") },
        { kind: "dots", name: "observed", label: "Observed", points: past("y") },
      ].filter((layer) => layer.points.length),
      rows: [
        ...history.map((row) => ({ x: moment(row.ds), title: weekday(row.ds), cells: [
          ["observed", "Observed", this.exact(row.y)], ["adapted", "Adapted", this.exact(row.median)],
          ["past80", "80 %", this.interval(row, 80)], ["global", "Global", this.exact(row.median_global)]] })),
        ...(forecast ?? []).map((row) => ({ x: moment(row.ds), title: weekday(row.ds), cells: [
          ["adapted", "Adapted", this.exact(row.median)], ["global", "Global", this.exact(row.median_global)],
          ...LEVELS.toReversed().map((level) => [`fan${level}`, `${level} %`, this.interval(row, level)])] })),
      ],
    });
    replace(this.missing,
      found && found.drift > found.limit ? html("div", { class: "notice" }, html("strong", {}, "This series drifts. "), explained(found)) : null,
      missing ? html("div", { class: "notice" }, html("strong", {}, "No forecast from now on. "), missing) : null,
      monitored ? null : html("div", { class: "notice" }, "Monitoring is off: the service was started with --no-monitor, or its log says why."));
  }

  showLocal(history, forecast) {
    const past = history.map((row) => [moment(row.ds), row.local]);
    const next = forecast.map((row) => [moment(row.ds), row.local]);
    const rows = [...past, ...next];
    const words = new Map([...history, ...forecast].map((row) => [moment(row.ds), weekday(row.ds)]));
    const known = rows.some(([, value]) => value !== null);
    this.local.node.hidden = !known;
    this.local.node.nextElementSibling?.remove();
    if (!known) return this.local.node.after(empty("Nothing to show yet", "Forecasts are compared when a window has passed since they were made."));
    this.local.draw({
      dated: typeof (history[0] ?? forecast[0]).ds === "string",
      zero: true,
      now: forecast.length && history.length ? (past[past.length - 1][0] + next[0][0]) / 2 : undefined,
      layers: [{ kind: "bars", name: "past", label: "Past forecasts", points: past }, { kind: "bars", name: "adapted", label: "Forecast now", points: next }]
        .filter((layer) => layer.points.length),
      rows: rows.map(([x, value]) => ({ x, title: words.get(x), cells: [["adapted", "Local model", signed(value, this.finer)]] })),
    });
  }

  interval(row, level) {
    return row[`lo_${level}`] === null ? "–" : `${this.exact(row[`lo_${level}`])} to ${this.exact(row[`hi_${level}`])}`;
  }

  showMemory({ effective_sample_size: sizes, aging_factors: factors }) {
    if (!sizes) return replace(this.memory, empty("No local statistics", "This model adapts in another way, or not at all."));
    const most = Math.max(...sizes, 1e-9);
    replace(this.memory, html("dl", { class: "meters" }, sizes.map((size, i) => {
      const bar = html("span", { class: "fill" });
      bar.style.width = `${(100 * size) / most}%`;
      const half = factors[i] < 1 ? `half the weight after ${number(Math.round(Math.log(0.5) / Math.log(factors[i])))} steps` : "forgets nothing";
      return [html("dt", {}, html("b", {}, fixed(factors[i], 2)), html("span", {}, half)),
        html("dd", {}, html("span", { class: "track", "aria-hidden": "true" }, bar), html("b", {}, number(size)))];
    }).flat()));
  }

  showFuture(forecast) {
    if (!forecast) return replace(this.future, empty("No forecast", "See above for what it needs."));
    replace(this.future, table("Forecast of the next steps", [
      { text: "Time", class: "name" }, { text: "Median" }, { text: "50 %", class: "roomy" }, { text: "80 %" }, { text: "95 %", class: "roomy" },
      { text: "Global", class: "roomy" }, { text: "Local" }],
    forecast.map((row) => [weekday(row.ds), html("b", {}, this.exact(row.median)), this.interval(row, 50), this.interval(row, 80), this.interval(row, 95),
      this.exact(row.median_global), signed(row.local, this.finer)])));
  }
}

/** What drift means, in the figures of this series. */
const explained = ({ drift: sigmas, limit, error_latest: now, error_before: before, rows_latest: latest, rows_before: earlier }) =>
  `Over its latest ${whole(latest)} values the error is ${percent(now)}, over the ${whole(earlier)} before it was ${percent(before)}. In a rank test, which allows for ` +
  `errors that come in groups and leaves out those below 1 % of the values, that is ${fixed(sigmas, 1)} standard deviations more than chance; from ${fixed(limit, 0)} on it is drift.`;

/** In standard deviations, coloured where it is one. */
function drift(found) {
  if (!found) return "–";
  return html("span", { class: found.drift > found.limit ? "worse" : "", title: "Standard deviations by which the latest errors are larger than those before, in a rank test" }, `${fixed(found.drift, 1)} σ`);
}

/** How large the local contribution is, against the forecast. */
function share(forecast) {
  if (!forecast) return null;
  const sum = (name) => forecast.reduce((total, row) => total + Math.abs(row[name]), 0);
  return sum("mean") ? sum("local") / sum("mean") : null;
}
