// Questions to the service, with the token if it needs one.

const TOKEN = "aru-token";
let model = null; // whose series are shown; null: the default one

export class Unauthorised extends Error {}
export class Unknown extends Error {}

export const token = () => sessionStorage.getItem(TOKEN);
export const keepToken = (value) => sessionStorage.setItem(TOKEN, value);
export const forgetToken = () => sessionStorage.removeItem(TOKEN);

// Ids may be integers beyond what JavaScript counts exactly: they stay the text that they are.
const exact = (key, value, source) =>
  key === "unique_id" && typeof value === "number" ? (source?.source ?? String(value)) : value;

async function get(path, signal) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  let answer;
  try {
    answer = await fetch(path, { headers, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service cannot be reached.", { cause: error });
  }
  if (answer.status === 401) throw new Unauthorised();
  const body = await answer.text();
  if (answer.ok) return JSON.parse(body, exact);
  let reason = `The service answered ${answer.status}.`;
  try {
    reason = JSON.parse(body).error.message;
  } catch {
    // The status has to do.
  }
  throw answer.status === 404 ? new Unknown(reason) : new Error(reason);
}

export const use = (name) => { model = name; };
export const place = () => (model === null ? "" : `/models/${encodeURIComponent(model)}`);
export const models = (signal) => get("/v1/models", signal);
export const fleet = (signal) => get(`/v1${place()}/monitor/fleet`, signal);
export const series = (id, signal) => get(`/v1${place()}/monitor/series/${encodeURIComponent(id)}`, signal);

export function list({ query = "", cursor = null, limit }, signal) {
  const wanted = new URLSearchParams({ limit, query });
  if (cursor !== null) wanted.set("cursor", cursor);
  return get(`/v1${place()}/series?${wanted}`, signal);
}
