// Champion and challenger side by side: who they are, and how they do on the same rows.

import { Chart } from "./charts.js";
import { html, replace } from "./dom.js";
import { moment, percent, signed, weekday, when, whole } from "./format.js";
import { card, empty, table } from "./parts.js";

const TITLES = { champion: "Champion", challenger: "Challenger", former: "Former champion" };

export class Versions {
  constructor() {
    this.chart = new Chart("Error of champion and challenger over time, on the same rows", 200);
    this.table = html("div", { class: "even" });
    this.scores = html("div");
    this.note = html("div");
    this.node = card("Champion and challenger", "Both take in the same rows. Each is scored on what came, forecast equally many steps ahead.", this.table, this.scores, this.note);
    this.node.hidden = true;
  }

  update({ versions, contest, model }) {
    const [champion, ...others] = versions;
    this.node.hidden = !others.length;
    if (!others.length) return;
    const rival = others[0];
    const scores = (version) => (contest === null ? null : version === champion ? contest.champion : version === rival ? contest.shadow : null);
    replace(this.table, table("Versions", [
      { text: "Version", class: "name" }, { text: "Status" }, { text: "Since", class: "roomy" },
      { text: "Behind", class: "roomy", title: "Entries of the champion's journal that it has not taken in" },
      { text: "Error", title: "ND, on the same rows" }, { text: "In 80 %", title: "Share of values inside the 80 % interval" },
      { text: "Rows", class: "roomy", title: "Rows on which they were compared" }],
    versions.map((version) => [`${TITLES[version.role]} ${version.version}`, version.status, when(version.since.slice(0, 19)),
      version === champion ? "" : whole(version.behind), html("b", {}, percent(scores(version)?.nd, 2)), percent(scores(version)?.coverage_80), whole(scores(version)?.observations)])));
    this.showScores(contest, TITLES[rival.role]);
    this.showNote(rival, contest, model);
  }

  showScores(contest, name) {
    if (!contest?.timeline.length) {
      return replace(this.scores, empty("Nothing to compare yet", "Versions are compared when a window of rows has come since they both forecast."));
    }
    if (!this.chart.node.isConnected) replace(this.scores, this.chart.node);
    const rows = contest.timeline, points = (side) => rows.map((row) => [moment(row.ds), row[side]]);
    this.chart.draw({
      dated: typeof rows[0].ds !== "number",
      zero: true,
      unit: (value, places) => `${(100 * value).toFixed(Math.max(0, places - 2))} %`,
      layers: [
        { kind: "line", name: "adapted", label: "Champion", points: points("champion") },
        { kind: "line", name: "rival", label: name, points: points("shadow") },
      ],
      rows: rows.map((row) => ({ x: moment(row.ds), title: weekday(row.ds), cells: [
        ["adapted", "Champion", percent(row.champion, 2)], ["rival", name, percent(row.shadow, 2)],
        ["none", "Change", signed(row.champion ? row.shadow / row.champion - 1 : null, percent)]] })),
    });
  }

  showNote(rival, contest, model) {
    const parts = [];
    if (contest?.series) parts.push(`Version ${rival.version} is better on ${whole(contest.series_better)} of ${whole(contest.series)} series and worse on ${whole(contest.series_worse)}. `);
    if (rival.refused_rows) parts.push(`It could not take ${whole(rival.refused_rows)} rows: ${rival.refused_reason} `);
    const command = { challenger: "promote", former: "rollback" }[rival.role];
    if (rival.status === "shadowing") parts.push("To let it answer:");
    replace(this.note, parts.length ? html("p", { class: "about below" }, parts) : null,
      rival.status === "shadowing" ? html("pre", { class: "command" }, `aru rollout ${command} --name ${model} --version ${rival.version}`) : null);
  }
}
