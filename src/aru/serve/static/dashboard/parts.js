// Pieces that several views share.

import { place } from "./api.js";
import { html } from "./dom.js";
import { change, percent, signed } from "./format.js";

export const home = () => `#${place()}/`;
export const link = (id) => `#${place()}/series/${encodeURIComponent(id)}`;

/** A figure with its name and what it compares with. */
export const tile = (name, value, note, ...more) =>
  html("div", { class: "tile" }, html("h3", {}, name), html("p", { class: "value", "data-figure": name }, value),
    html("p", { class: "note" }, note ?? ""), ...more);

export const card = (title, about, ...content) =>
  html("section", { class: "card" }, html("h2", {}, title), about ? html("p", { class: "about" }, about) : null, ...content);

export const empty = (title, ...text) =>
  html("div", { class: "empty" }, html("strong", {}, title), ...text.map((part) => (typeof part === "string" ? html("p", {}, part) : part)));

/** The change of the error by adapting, coloured: less is good. */
export function gain(accuracy) {
  const by = change(accuracy);
  const kind = by === null || Math.abs(by) < 0.0005 ? "" : by < 0 ? "better" : "worse";
  return html("span", { class: kind }, signed(by, percent));
}

export function table(caption, headings, rows) {
  const cells = (row) => row.map((cell, i) => html(i ? "td" : "th", { class: headings[i].class, scope: i ? null : "row" }, cell));
  return html("table", {}, html("caption", { class: "unseen" }, caption),
    html("thead", {}, html("tr", {}, headings.map((heading) => html("th", { scope: "col", class: heading.class, title: heading.title }, heading.text)))),
    html("tbody", {}, rows.map((row) => html("tr", {}, cells(row)))));
}

export const skeleton = () =>
  html("div", { class: "loading", role: "status" }, html("span", { class: "unseen" }, "Loading"),
    html("div", { class: "tiles" }, [1, 2, 3, 4, 5, 6].map(() => html("div", { class: "tile bone" }))), html("div", { class: "card bone tall" }));
