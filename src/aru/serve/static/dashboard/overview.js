// All series at a glance.

import * as api from "./api.js";
import { Chart, sparkline } from "./charts.js";
import { byId, html, replace } from "./dom.js";
import { change, fixed, moment, number, percent, signed, weekday, when, whole } from "./format.js";
import { card, empty, gain, link, table, tile } from "./parts.js";
import { Versions } from "./versions.js";

const PAGE = 20;
const EXAMPLE = `curl -X POST ${location.origin}/v1/observations -H 'Content-Type: application/json' \\
  -d '{"observations": [{"unique_id": "shop-1", "ds": "2024-09-01", "y": 311.5}]}'`;

export class Overview {
  constructor() {
    this.title = "aru";
    this.tiles = html("div", { class: "tiles" });
    this.chart = new Chart("Error of the adapted and of the global forecast over time", 240);
    this.accuracy = html("div");
    this.versions = new Versions();
    this.drift = html("div");
    this.list = html("div");
    this.shown = PAGE;
  }

  async load(signal) {
    const [fleet, pages] = await Promise.all([api.fleet(signal), this.pages(signal)]);
    return { fleet, ...pages };
  }

  async pages(signal) {
    const rows = [];
    let cursor = null;
    do {
      const page = await api.list({ cursor, limit: Math.min(1000, this.shown - rows.length) }, signal);
      rows.push(...page.series);
      cursor = page.next_cursor;
    } while (cursor !== null && rows.length < this.shown);
    return { rows, more: cursor !== null };
  }

  build() {
    return [
      html("h1", { class: "unseen" }, "All series"),
      this.tiles,
      this.versions.node,
      card("Error over time", null, this.accuracy),
      html("div", { class: "columns" },
        card("Drifting most", "How surely the latest errors are larger than those before, in standard deviations of a rank test. Over 3 a series drifts.", this.drift),
        card("All series", "In order of their names.", this.list)),
    ];
  }

  /** Show data; returns whether what `build` made is still on the page. */
  update({ fleet, rows, more }, refresh) {
    if (!fleet.series) {
      replace(byId("view"), empty("No series yet", "Each appears here with its first observation. For example:", html("pre", {}, EXAMPLE)));
      return false;
    }
    this.showTiles(fleet);
    this.versions.update(fleet.rollout);
    this.showAccuracy(fleet);
    this.showDrift(fleet);
    this.showList(rows, more, fleet, refresh);
    return true;
  }

  showTiles({ model, series, observations_per_second: rate, observations_by_second: seconds, accuracy, ...fleet }) {
    const about = [model.name, `h = ${model.h}`, ...(model.freq === null ? [] : [`freq = ${model.freq}`])].join(", ");
    replace(this.tiles,
      tile("Series", whole(series), about),
      tile("Observations / s", number(rate), "in the last minute", sparkline([["rate", seconds]], 96, 26, "Observations in each of the last 60 seconds")),
      tile("Error, adapted", percent(accuracy.nd), `global forecast ${percent(accuracy.nd_global)}`),
      tile("By adapting", gain(accuracy), "change of the error"),
      tile("Better, worse", html("span", {}, html("span", { class: "better" }, whole(fleet.series_improved)), " / ",
        html("span", { class: "worse" }, whole(fleet.series_worsened))), `of ${whole(fleet.series_scored)} series scored`),
      tile("In 80 % interval", percent(accuracy.coverage_80), `of ${whole(accuracy.observations)} observations`));
  }

  showAccuracy({ timeline, model, monitored }) {
    if (!timeline.length) {
      return replace(this.accuracy, monitored
        ? empty("Nothing to compare yet", `Forecasts are scored when ${model.h} steps of a series have passed since they were made.`)
        : empty("Monitoring is off", "The service was started with --no-monitor, or its log says why."));
    }
    if (!this.chart.node.isConnected) replace(this.accuracy,
      html("p", { class: "about" }, `Sum of absolute errors over sum of absolute values (ND), all series, over the ${model.h} times up to each.`), this.chart.node);
    const points = (...names) => timeline.map((row) => [moment(row.ds), ...names.map((name) => row[name])]);
    this.chart.draw({
      dated: typeof timeline[0].ds !== "number",
      zero: true,
      unit: (value, places) => `${(100 * value).toFixed(Math.max(0, places - 2))} %`,
      layers: [
        { kind: "band", name: "gain", points: points("nd", "nd_global") },
        { kind: "line", name: "global", label: "Global forecast", points: points("nd_global") },
        { kind: "line", name: "adapted", label: "Adapted forecast", points: points("nd") },
      ],
      rows: timeline.map((row) => ({ x: moment(row.ds), title: weekday(row.ds), cells: [
        ["adapted", "Adapted", percent(row.nd)], ["global", "Global", percent(row.nd_global)],
        ["none", "Change", signed(change(row), percent)], ["none", "In 80 % interval", percent(row.coverage_80)],
        ["none", "Observations", whole(row.observations)]] })),
    });
  }

  showDrift({ drifting, monitored }) {
    if (!drifting.length) return replace(this.drift, empty("No drift to show", monitored
      ? "A series is listed when enough of its forecasts have been scored." : "The service was started with --no-monitor, or its log says why."));
    const rows = drifting.map((row) => [
      html("a", { href: link(row.unique_id), "data-key": `drift ${row.unique_id}` }, String(row.unique_id)),
      sparkline([["adapted", row.median], ["observed", row.y]], 104, 26, `Latest values of ${row.unique_id} and what had been forecast`),
      html("b", { class: row.drift > 3 ? "worse" : "" }, `${fixed(row.drift, 1)} σ`), percent(row.nd), percent(row.nd_global), gain(row)]);
    replace(this.drift, table("Series that drift most", [
      { text: "Series", class: "name" },
      { text: "Values, forecasts", class: "picture" },
      { text: "Drift", title: "Standard deviations by which the latest errors are larger than those before" },
      { text: "Error", title: "ND of the adapted forecast" },
      { text: "Global", class: "roomy", title: "ND of the global forecast" },
      { text: "Change", class: "roomy", title: "Adapted against global" }], rows));
  }

  showList(rows, more, fleet, refresh) {
    const cells = rows.map((row) => [
      html("a", { href: link(row.unique_id), "data-key": `list ${row.unique_id}` }, String(row.unique_id)),
      when(row.ds), whole(row.observations), percent(row.accuracy?.nd), gain(row.accuracy)]);
    const longer = html("button", { type: "button", class: "more", "data-key": "more", onclick: () => { this.shown += 5 * PAGE; refresh(); } },
      `Show more of ${whole(fleet.series)}`);
    replace(this.list, table("All series", [
      { text: "Series", class: "name" }, { text: "Latest" }, { text: "Rows", class: "roomy", title: "Observations so far" },
      { text: "Error", title: "ND of the adapted forecast" }, { text: "Change", title: "Adapted against global" }], cells), more ? longer : null);
  }
}
