// A JSON value that can be unfolded. Large parts stay folded, and omitted parts can be loaded.

import { button, copy, h } from "./dom.js";
import { brief, bytes } from "./format.js";
import { media } from "./media.js";

const SHOWN = 50;
const LONG = 240;

/**
 * @typedef {{open?: number, fetch?: (() => Promise<any>) | null}} Options
 *   The number of open levels; the loader of the complete value.
 */

/** @param {any} value @param {Options} [options] */
export function valueTree(value, options = {}) {
  const open = options.open ?? 2;
  const box = h("div", { class: "tree" });
  const bare = value !== null && typeof value === "object" && !("$large" in value) && Object.keys(value).length > 0;
  if (bare && open > 0) more(box, Object.entries(value), 0, open - 1, options, []);
  else box.append(part(null, value, open, options, []));
  return box;
}

/** @param {string | null} name @param {any} value @param {number} open @param {Options} options @param {string[]} where */
function part(name, value, open, options, where) {
  if (value !== null && typeof value === "object") {
    if ("$large" in value) return large(name, value, options, where);
    const shown = folder(name, value, open, options, where);
    const picture = media(value);
    return picture ? h("div", {}, picture, shown) : shown;
  }
  return h("div", { class: "leaf" }, name !== null && label(name), scalar(value));
}

/** @param {string} name */
const label = (name) => h("span", { class: "key", text: name });

/** @param {any} value */
export function scalar(value) {
  if (typeof value === "string") return text(value);
  const kind = value === null || value === undefined ? "null" : typeof value;
  // Sums of fractions have noise in their last digits.
  const shown = kind === "number" && !Number.isInteger(value) ? Number(value.toPrecision(12)) : value;
  return h("span", { class: `scalar ${kind}`, text: value === undefined ? "–" : String(shown) });
}

/** @param {string} value */
function text(value) {
  if (value.length <= LONG && !value.includes("\n")) return h("span", { class: "scalar string", text: value || "“”" });
  const lines = value.split("\n").length;
  const whole = h("pre", { class: "scalar string long", text: value, tabindex: 0 });
  if (value.length <= 1200 && lines <= 16) return whole;
  const hint = lines > 1 ? `${lines} lines` : `${value.length} characters`;
  return h(
    "details",
    { class: "text" },
    h("summary", {}, h("span", { text: brief(value, 160) }), h("small", { text: hint })),
    whole,
  );
}

/** @param {string | null} name @param {any} value @param {number} open @param {Options} options @param {string[]} where */
function folder(name, value, open, options, where) {
  const entries = Object.entries(value);
  const empty = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length)
    return h("div", { class: "leaf" }, name !== null && label(name), h("span", { class: "scalar null", text: empty }));
  const size = Array.isArray(value) ? `${entries.length} items` : brief(value, 90);
  const body = h("div", { class: "branch" });
  const summary = h("summary", {}, name !== null && label(name), h("small", { text: size }));
  const box = h("details", { class: "node", open: open > 0 && JSON.stringify(value).length < 20_000 }, summary, body);
  const unfold = () => {
    if (body.childElementCount || !box.open) return;
    more(body, entries, 0, open - 1, options, where);
  };
  box.addEventListener("toggle", unfold);
  unfold();
  return box;
}

/** Adds the next entries, and a button for the rest. */
function more(body, entries, from, open, options, where) {
  for (const [name, value] of entries.slice(from, from + SHOWN)) {
    body.append(part(name, value, open, options, [...where, name]));
  }
  const left = entries.length - from - SHOWN;
  if (left <= 0) return;
  const next = button(
    `${left} more`,
    () => {
      next.remove();
      more(body, entries, from + SHOWN, open, options, where);
    },
    { class: "quiet" },
  );
  body.append(next);
}

/** The part that was omitted for its size. */
function large(name, value, options, where) {
  const line = h("div", { class: "leaf large" }, name !== null && label(name));
  line.append(
    h("span", { class: "scalar string", text: `${value.preview}…` }),
    h("small", { text: bytes(value.$large) }),
  );
  const { fetch } = options;
  if (!fetch) {
    line.append(h("small", { text: "not kept in this file" }));
    return line;
  }
  const load = button(
    "Load",
    async () => {
      load.disabled = true;
      const whole = where.reduce((inside, key) => inside?.[key], await fetch());
      line.replaceWith(part(name, whole, 1, { ...options, fetch: null }, where));
    },
    { class: "quiet" },
  );
  line.append(load);
  return line;
}

/** A value as text, folded, with a button that copies it. @param {any} value */
export function rawJson(value) {
  const pre = h("pre", { class: "raw", tabindex: 0 });
  const written = () => JSON.stringify(value, null, 2);
  const box = h("details", {}, h("summary", { text: "JSON" }), pre);
  box.addEventListener("toggle", () => {
    if (box.open && !pre.textContent) pre.textContent = written();
  });
  return h(
    "div",
    { class: "raw-json" },
    box,
    button("Copy JSON", () => void copy(written()), { icon: "copy", class: "quiet" }),
  );
}
