// Numbers, times and values as short texts.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number | null | undefined} value */
export const number = (value) => (typeof value === "number" ? NUMBER.format(value) : "–");

/** @param {number | null | undefined} value */
export const compact = (value) =>
  typeof value === "number" && value >= 10_000 ? COMPACT.format(value) : number(value);

/** An amount of money. @param {number | null | undefined} value */
export function money(value) {
  if (typeof value !== "number") return "–";
  if (value === 0) return "$0";
  return value < 0.01 ? `$${value.toPrecision(2)}` : `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

/** @param {number} size of data, in bytes */
export function bytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${NUMBER.format(size / 1000)} kB` : `${NUMBER.format(size / 1_000_000)} MB`;
}

/** A length of time, in three digits or two units. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (typeof seconds !== "number" || Number.isNaN(seconds)) return "–";
  if (seconds <= 0) return "0";
  if (seconds < 0.0009995) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${digits(seconds * 1000)} ms`;
  if (seconds < 60) return `${digits(seconds)} s`;
  const units = [
    ["d", 86400],
    ["h", 3600],
    ["m", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [[large, of], [small, part]] = [units[first], units[Math.min(first + 1, 3)]];
  const rest = Math.floor((seconds % of) / part);
  return rest ? `${Math.floor(seconds / of)}${large} ${rest}${small}` : `${Math.floor(seconds / of)}${large}`;
}

/** @param {number} value */
const digits = (value) => (value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

/** A time of the day. @param {number} seconds wall-clock */
export function clock(seconds) {
  const date = new Date(seconds * 1000);
  const two = (value, length = 2) => String(value).padStart(length, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${time}.${two(date.getMilliseconds(), 3)}`;
}

/** A day and time. @param {number} seconds wall-clock */
export const moment = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 10)} ${clock(seconds)}`;

/** The time since an event. @param {string | number | null | undefined} when ISO-8601, or wall-clock seconds */
export function ago(when) {
  const seconds = instant(when);
  if (seconds === null) return "–";
  const past = Date.now() / 1000 - seconds;
  return past < 5 ? "now" : `${duration(Math.round(past))} ago`;
}

/** Wall-clock seconds of an ISO-8601 text. @param {string | number | null | undefined} when @returns {number | null} */
export function instant(when) {
  if (typeof when === "number") return when;
  if (!when) return null;
  // Without a zone the server means UTC.
  const text = /[zZ]|[+-]\d\d:?\d\d$/.test(when) ? when : `${when}Z`;
  const value = Date.parse(text);
  return Number.isNaN(value) ? null : value / 1000;
}

/** The fields of an event, with the undeclared ones on the same level. @param {any} value */
export function fieldsOf(value) {
  const { _data: data, ...declared } = value ?? {};
  return data && typeof data === "object" ? { ...data, ...declared } : (value ?? {});
}

/** The duration of a run, in seconds. @param {Record<string, any>} run @param {number} [last] time of its last event */
export function took(run, last) {
  const started = instant(run.started_at);
  const end = instant(run.completed_at) ?? last ?? (run.status === "running" ? Date.now() / 1000 : instant(run.updated_at));
  return started && end ? Math.max(0, end - started) : null;
}

/** The last part of a dotted name. @param {string | null | undefined} name */
export const shortName = (name) => (name ?? "").split(".").pop() ?? "";

/** A value in one line. @param {any} value @param {number} [room] characters @returns {string} */
export function brief(value, room = 200) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return cut(value.replace(/\s+/g, " ").trim(), room);
  if (typeof value !== "object") return String(value);
  if ("$large" in value) return `${bytes(value.$large)}: ${cut(value.preview ?? "", room)}`;
  if (Array.isArray(value)) {
    return value.length
      ? cut(
          `[${value
            .slice(0, 8)
            .map((part) => brief(part, 40))
            .join(", ")}]`,
          room,
        )
      : "[]";
  }
  let text = "";
  for (const [name, part] of Object.entries(value)) {
    if (part === null || part === "" || (typeof part === "object" && !Object.keys(part).length)) continue;
    text += `${text ? " · " : ""}${name}: ${brief(part, 60)}`;
    if (text.length > room) break;
  }
  return cut(text || (Object.keys(value).length ? "…" : ""), room);
}

/** The text of a message or of the output of a tool; of a cut one, its beginning. @param {any} value @returns {string} */
export function textOf(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "object") return String(value);
  if ("$large" in value) return beginning(value.preview ?? "");
  if (!Array.isArray(value)) return textOf(value.content ?? value.blocks);
  return value
    .map((block) => textOf(block?.text))
    .filter(Boolean)
    .join(" ");
}

/** The first text in the beginning of a value as JSON. @param {string} preview */
function beginning(preview) {
  const found = /(?:^|"text":)"((?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*)/.exec(preview);
  return found ? `${JSON.parse(`"${found[1]}"`)}…` : `${preview}…`;
}

/** The distinctive part of an event: its texts, and its numbers with their names. @param {any} value */
export function gist(value) {
  const parts = Object.entries(value ?? {}).filter(([, part]) => typeof part === "string" || typeof part === "number");
  return cut(parts.map(([name, part]) => (typeof part === "string" ? part : `${name} ${part}`)).join(" · "), 60);
}

/** @param {string} text @param {number} room */
const cut = (text, room) => (text.length > room ? `${text.slice(0, room - 1)}…` : text);

/** Returns true if a part of a value was omitted for its size. @param {any} value @returns {boolean} */
export function hasLarge(value) {
  if (value === null || typeof value !== "object") return false;
  return "$large" in value || Object.values(value).some(hasLarge);
}
