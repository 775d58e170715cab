// Find a series by part of its name: "/" or Ctrl-K goes there, arrows choose, Enter opens, Escape leaves.

import * as api from "./api.js";
import { byId, html, replace } from "./dom.js";
import { when } from "./format.js";
import { link } from "./parts.js";

const MOST = 12, PATIENCE = 150;
const field = byId("search"), found = byId("found");
let asked = null, timer = 0, chosen = -1, options = [], rows = [], shown = null; // shown: the query of these rows

function close() {
  clearTimeout(timer);
  asked?.abort();
  found.hidden = true;
  field.setAttribute("aria-expanded", "false");
  field.removeAttribute("aria-activedescendant");
  [options, rows, shown, chosen] = [[], [], null, -1];
}

function choose(index) {
  chosen = index;
  options.forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
  if (index < 0) return;
  field.setAttribute("aria-activedescendant", options[index].id);
  options[index].scrollIntoView({ block: "nearest" });
}

function open(id) {
  close();
  field.value = "";
  field.blur();
  location.hash = link(id);
}

function marked(name, query) {
  const at = name.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0 || !query) return [name];
  return [name.slice(0, at), html("mark", {}, name.slice(at, at + query.length)), name.slice(at + query.length)];
}

async function look() {
  clearTimeout(timer);
  asked?.abort();
  asked = new AbortController();
  const query = field.value.trim();
  let note = null, next = [], more = false;
  try {
    const page = await api.list({ query, limit: MOST }, asked.signal);
    [next, more] = [page.series, page.next_cursor !== null];
    if (!next.length) note = query ? `No series contains “${query}”.` : "There are no series yet.";
  } catch (error) {
    if (error.name === "AbortError") return;
    note = error instanceof api.Unauthorised ? "The token is missing." : error.message;
  }
  [rows, shown] = [next, query];
  options = rows.map((row, i) => html("li", { id: `option-${i}`, role: "option", "aria-selected": "false",
    onpointerdown: (event) => { event.preventDefault(); open(row.unique_id); } },
  html("span", {}, marked(String(row.unique_id), query)), html("small", {}, when(row.ds))));
  if (more) note = "Type more of the name to see others.";
  replace(found, options, note ? html("li", { class: "note", role: "presentation" }, note) : null);
  found.hidden = false;
  field.setAttribute("aria-expanded", "true");
  choose(rows.length && query ? 0 : -1);
}

async function enter() {
  if (shown !== field.value.trim()) await look(); // the answer is not there yet
  if (chosen >= 0) open(rows[chosen].unique_id);
}

field.addEventListener("focus", look);
field.addEventListener("blur", close);
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(look, PATIENCE);
});
field.addEventListener("keydown", (event) => {
  const count = options.length;
  if (event.key === "Escape") {
    field.value = "";
    field.blur();
  } else if (event.key === "Enter") enter();
  else if (event.key === "ArrowDown" && count) choose((chosen + 1) % count);
  else if (event.key === "ArrowUp" && count) choose((chosen - 1 + count) % count);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, dialog");
  const wanted = (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) || (event.key === "k" && (event.ctrlKey || event.metaKey));
  if (!wanted || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  field.focus();
});
