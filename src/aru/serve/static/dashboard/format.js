// Numbers and times as people read them.

const NONE = "–";
const digits = (least, most) => new Intl.NumberFormat("en", { minimumFractionDigits: least, maximumFractionDigits: most });
const FIXED = [0, 1, 2, 3, 4, 5, 6].map((n) => digits(n, n));
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const TINY = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

/** About four digits. */
export function number(value) {
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e6) return SHORT.format(value);
  if (size >= 100 || Number.isInteger(value)) return FIXED[0].format(value);
  if (size >= 10) return FIXED[1].format(value);
  return size >= 1 ? FIXED[2].format(value) : TINY.format(value);
}

export const whole = (value) => (missing(value) ? NONE : FIXED[0].format(value));
export const fixed = (value, places) => FIXED[Math.max(0, Math.min(6, places))].format(value).replace("-", "−");
export const percent = (value, places = 1) => (missing(value) ? NONE : `${FIXED[places].format(100 * value)} %`);

/** Numbers with the decimals that matter beside values as large as these, or with some more. */
export function beside(values, more = 0) {
  const most = Math.max(...values.filter((value) => !missing(value)).map(Math.abs), 1e-6);
  const places = values.every((value) => missing(value) || Number.isInteger(value)) ? 0 : 2 - Math.floor(Math.log10(most));
  return (value) => (missing(value) ? NONE : most < 1e6 ? fixed(value, Math.max(0, places) + more) : number(value));
}

/** A change with its sign. */
export function signed(value, text = number) {
  if (missing(value)) return NONE;
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${text(Math.abs(value))}`;
}

/** Error of the adapted forecast against the global one: -0.1 is a tenth less. */
export const change = (accuracy) =>
  accuracy && accuracy.nd !== null && accuracy.nd_global ? accuracy.nd / accuracy.nd_global - 1 : null;

const DAY = 86_400_000;
const zone = { timeZone: "UTC" };
const DATE = new Intl.DateTimeFormat("en-GB", { ...zone, day: "numeric", month: "short", year: "numeric" });
const TIME = new Intl.DateTimeFormat("en-GB", { ...zone, hour: "2-digit", minute: "2-digit" });
const SECOND = new Intl.DateTimeFormat("en-GB", { ...zone, hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MONTH = new Intl.DateTimeFormat("en-GB", { ...zone, month: "short" });
const DAY_MONTH = new Intl.DateTimeFormat("en-GB", { ...zone, day: "numeric", month: "short" });
const WEEKDAY = new Intl.DateTimeFormat("en-GB", { ...zone, weekday: "short" });

/** A time of the service as a number: milliseconds, or the integer that it is. Times have no zone, like those sent. */
export const moment = (ds) => (typeof ds === "number" ? ds : Date.parse(`${ds.slice(0, 23)}Z`));

/** A time in words. */
export function when(ds) {
  if (typeof ds === "number") return whole(ds);
  const at = moment(ds);
  if (at % DAY === 0) return DATE.format(at);
  return `${DATE.format(at)}, ${(at % 60_000 ? SECOND : TIME).format(at)}`;
}

/** The same with the day of the week. */
export const weekday = (ds) => (typeof ds === "number" ? when(ds) : `${WEEKDAY.format(moment(ds))} ${when(ds)}`);

const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200].map((s) => 1000 * s)
  .concat([1, 2, 7, 14].map((d) => d * DAY));
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600];

/** About `count` round times between two, with their words. */
export function timeTicks(from, to, count) {
  const room = (to - from) / Math.max(1, count);
  const step = STEPS.find((s) => s >= room);
  const ticks = [];
  if (step !== undefined) {
    const words = step < DAY ? (step < 60_000 ? SECOND : TIME) : DAY_MONTH;
    const shift = step % (7 * DAY) === 0 ? 4 * DAY : 0; // weeks begin on Mondays
    for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step)
      ticks.push([at, (step < DAY && at % DAY === 0 ? DAY_MONTH : words).format(at)]);
    return ticks;
  }
  const months = MONTHS.find((m) => m * 32 * DAY >= room) ?? 1200;
  const first = new Date(from);
  const begin = 12 * first.getUTCFullYear() + first.getUTCMonth();
  for (let month = Math.ceil(begin / months) * months; ; month += months) {
    const at = Date.UTC(Math.floor(month / 12), month % 12);
    if (at > to) return ticks;
    if (at >= from) ticks.push([at, month % 12 ? MONTH.format(at) : String(month / 12)]);
  }
}

/** About `count` round numbers between two, with their words. */
export function numberTicks(from, to, count, words = fixed) {
  const room = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(room));
  const step = [1, 2, 2.5, 5, 10].find((s) => s * power >= room) * power;
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) + (/^25/.test(String(step / power * 10)) ? 1 : 0);
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9 * step; i++) ticks.push([i * step || 0, words(i * step || 0, places)]);
  return ticks;
}
