// Which view is shown, and that it stays up to date.

import * as api from "./api.js";
import { byId, html, replace } from "./dom.js";
import { Overview } from "./overview.js";
import { empty, home, skeleton } from "./parts.js";
import "./search.js";
import { Series } from "./series.js";

const EVERY = 5000, LONGEST = 30_000; // milliseconds between refreshes, and at most after failures
const main = byId("view"), problem = byId("problem"), dialog = byId("token"), live = byId("live"), choice = byId("model");
let view = null, built = false, asked = null, timer = 0, failures = 0, paused = false;

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a % that encodes nothing
  }
};

function route() {
  const [, model, id] = location.hash.match(/^#(?:\/models\/([^/]+))?(?:\/series\/(.+)|\/?)$/s) ?? [];
  api.use(model === undefined ? null : decoded(model));
  return id === undefined ? new Overview() : new Series(decoded(id));
}

/** Which model is shown, if there are several. */
async function showModels(signal) {
  const { models, default: first } = await api.models(signal);
  const shown = location.hash.match(/^#\/models\/([^/]+)/)?.[1];
  choice.hidden = models.length < 2;
  replace(choice, models.map((model) => html("option", { value: model.model }, model.model)));
  choice.value = shown === undefined ? first : decoded(shown);
  document.querySelector(".brand").href = home();
}

function go() {
  if (location.hash === "#view") return; // the link that skips the header
  const first = view === null;
  [view, built, failures] = [route(), false, 0];
  document.title = view.title;
  main.setAttribute("aria-busy", "true");
  replace(main, skeleton());
  if (!first) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  asked?.abort();
  const mine = (asked = new AbortController()), shown = view;
  try {
    const data = await shown.load(mine.signal);
    if (!built) await showModels(mine.signal);
    if (mine.signal.aborted) return;
    if (!built) replace(main, shown.build());
    built = shown.update(data, refresh);
    failures = 0;
    say(null);
  } catch (error) {
    if (mine.signal.aborted) return;
    if (error instanceof api.Unauthorised) return askForToken();
    if (error instanceof api.Unknown) {
      built = false;
      replace(main, empty("This series is not known", `“${shown.id}” has not begun, or was forgotten.`, html("a", { href: home() }, "← All series")));
    } else {
      failures += 1;
      if (!built) replace(main, empty("Nothing to show yet", "The page tries again by itself."));
      say(error.message);
    }
  }
  main.setAttribute("aria-busy", "false");
  byId("sign-out").hidden = !api.token();
  plan();
}

function plan() {
  clearTimeout(timer);
  if (!paused && !document.hidden) timer = setTimeout(refresh, Math.min(LONGEST, EVERY * 2 ** Math.min(failures, 6) / (failures ? 2 : 1)));
}

function say(message) {
  problem.hidden = message === null;
  problem.textContent = message === null ? "" : `${message} ${built ? "What you see is the latest answer. " : ""}Trying again.`;
  live.className = message !== null ? "failing" : paused ? "paused" : "";
  byId("live-text").textContent = message !== null ? "No answer" : paused ? "Paused" : "Live";
}

function askForToken() {
  byId("token-wrong").hidden = !api.token();
  api.forgetToken();
  if (!dialog.open) dialog.showModal();
  byId("token-value").focus();
}

dialog.addEventListener("cancel", (event) => event.preventDefault()); // there is nothing to see without it
dialog.querySelector("form").addEventListener("submit", () => {
  api.keepToken(byId("token-value").value.trim());
  byId("token-value").value = "";
  refresh();
});
byId("sign-out").addEventListener("click", () => {
  api.forgetToken();
  location.reload();
});
choice.addEventListener("change", () => { location.hash = `#/models/${encodeURIComponent(choice.value)}/`; });
live.addEventListener("click", () => {
  paused = !paused;
  live.setAttribute("aria-pressed", String(!paused));
  live.title = paused ? "Refresh again every five seconds" : "Stop refreshing";
  say(null);
  if (paused) clearTimeout(timer);
  else refresh();
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("aru-theme", root.dataset.theme);
  } catch {
    // It lasts as long as the page.
  }
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : paused || refresh()));
addEventListener("hashchange", go);
go();
