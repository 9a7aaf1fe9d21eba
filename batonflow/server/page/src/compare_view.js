// The comparison of two runs: figures, calls or events from the place where they part, and state.

import { attempt, button, h } from "./dom.js";
import { recordOf } from "./calls.js";
import { messageCard } from "./chat.js";
import {
  callKey,
  changedParameters,
  figuresOf,
  load,
  plain,
  rowKey,
  shared,
  sideOf,
  stateDifferences,
} from "./compare.js";
import { brief, compact, duration, money, number, shortName } from "./format.js";
import { isOver } from "./model.js";
import { showPending } from "./pending_view.js";
import { address } from "./router.js";
import { Session } from "./session.js";
import { statusMark } from "./status.js";

const PAIRS = 20;
const EVERY = 2000;

/** @typedef {import("./compare.js").Side} Side */

/** The two runs of an address, with encoded ids that a comma parts. @param {string} text @returns {string[] | null} */
export function pairIn(text) {
  try {
    const ids = text.split(",").map(decodeURIComponent);
    return ids.length === 2 && ids.every(Boolean) ? ids : null;
  } catch {
    return null;
  }
}

/** The address of a comparison. @param {string} one @param {string} other */
export const comparison = (one, other) => address({ compare: [one, other].map(encodeURIComponent).join(",") });

/** Two runs beside each other, read again while one of them goes on. @param {any} source @param {string[]} ids @returns {Promise<HTMLElement>} */
export async function compareView(source, ids) {
  const [one, other] = await Promise.all(ids.map((id) => opened(source, id)));
  const again = async () => box.replaceWith(await compareView(source, ids));
  const parts = one.calls.length || other.calls.length ? await calls(one, other) : events(one, other);
  const box = h(
    "div",
    { class: "compare" },
    h(
      "header",
      { class: "runs-head" },
      h("h1", { text: "Comparison" }),
      button("Refresh", () => void attempt(again), { class: "quiet" }),
    ),
    [one, other].map(({ session }) => {
      const banners = h("div", { class: "banners" });
      showPending(session, banners);
      return banners;
    }),
    figures(one, other),
    parts,
    state(one, other),
  );
  const open = [one, other].filter(({ session }) => !isOver(session.handler));
  if (open.length) setTimeout(() => void follow(open, box, again), EVERY);
  return box;
}

/**
 * Reads the runs again when one of them has changed, as long as they are shown.
 * @param {Side[]} open @param {HTMLElement} box @param {() => Promise<void>} again
 */
async function follow(open, box, again) {
  if (!box.isConnected) return;
  const grown = async ({ session }) => (await session.source.handler(session.id)).updated_at !== session.handler.updated_at;
  // A server that does not answer is asked again.
  const changed = document.visibilityState === "visible" && (await Promise.all(open.map(grown)).catch(() => []));
  if (changed && changed.some(Boolean) && box.isConnected) await attempt(again);
  else setTimeout(() => void follow(open, box, again), EVERY);
}

/** @param {Side} one @param {Side} other */
function state(one, other) {
  const changed = stateDifferences(one, other);
  const heads = ["Place", one.session.id, other.session.id];
  return h(
    "section",
    { class: "card" },
    h("h2", { text: "State at the end" }),
    changed.length
      ? table(heads, changed.slice(0, PAIRS).map(change))
      : h("p", { class: "muted", text: "The state is the same." }),
    changed.length > PAIRS && h("p", { class: "muted", text: `${changed.length - PAIRS} further places differ.` }),
  );
}

/** @param {any} source @param {string} id */
async function opened(source, id) {
  const session = new Session(source, await source.handler(id), null);
  await session.open();
  session.leave();
  return sideOf(session);
}

/** @param {{where: string, before: any, after: any}} one */
const change = ({ where, before, after }) => [
  where,
  ...[before, after].map((value) => (value === undefined ? "–" : brief(value, 300))),
];

/** @param {Side} one @param {Side} other */
function figures(one, other) {
  const equal = shared(one.calls, other.calls, callKey);
  const [left, right] = [figuresOf(one, equal), figuresOf(other, equal)];
  const lines = [
    ["Took", left.took, right.took, duration],
    ["Model calls", left.calls, right.calls, number],
    ["Tool calls", left.tools, right.tools, number],
    ["Tokens in", left.input, right.input, compact],
    ["Tokens out", left.output, right.output, compact],
    ["Cost", left.cost, right.cost, money],
    ["Cost where they differ", left.ownCost, right.ownCost, money],
    ["Commits", left.commits, right.commits, number],
  ].filter(([, a, b]) => a || b);
  const rows = lines.map(([name, a, b, shown]) => [name, shown(a), shown(b), difference(a, b)]);
  const heads = [one, other].map(({ session }) =>
    h(
      "div",
      { class: "compare-run" },
      h("a", { href: address({ run: session.id }), text: session.id }),
      statusMark(session.handler),
    ),
  );
  const names = [one, other].map(({ session }) => shortName(session.handler.workflow_name));
  return h(
    "section",
    { class: "card" },
    table(["", ...heads, "Difference"], [["Workflow", ...names, names[0] === names[1] ? "" : "different"], ...rows]),
  );
}

/** @param {any} one @param {any} other */
function difference(one, other) {
  if (typeof one !== "number" || typeof other !== "number" || one === other) return "";
  if (!one) return "more";
  const percent = Math.round((Math.abs(other - one) / one) * 100);
  return percent ? `${other > one ? "+" : "−"}${percent} %` : "";
}

/** @param {any[]} heads @param {any[][]} rows */
function table(heads, rows) {
  const line = (cells) =>
    h(
      "tr",
      {},
      cells.map((cell, at) => (at ? h("td", {}, cell) : h("th", { scope: "row" }, cell))),
    );
  const head = h(
    "tr",
    {},
    heads.map((cell) => h("th", { scope: "col" }, cell)),
  );
  return h(
    "div",
    { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Comparison" },
    h("table", {}, h("thead", {}, head), h("tbody", {}, rows.map(line))),
  );
}

/** @param {number} count @param {string} noun @param {boolean} all */
function note(count, noun, all) {
  if (all) return `All ${count} ${noun}s are the same.`;
  return count
    ? `The first ${count === 1 ? noun : `${count} ${noun}s`} ${count === 1 ? "is" : "are"} the same.`
    : `The runs differ from the first ${noun} on.`;
}

/** @param {Side} one @param {Side} other */
async function calls(one, other) {
  const count = shared(one.calls, other.calls, callKey);
  const [left, right] = [one.calls.slice(count, count + PAIRS), other.calls.slice(count, count + PAIRS)];
  await Promise.all([load(one, left), load(other, right)]);
  const pairs = Array.from({ length: Math.max(left.length, right.length) }, (_, at) =>
    h(
      "div",
      { class: "pair-line" },
      at > left.length ? h("div") : callCell(one, left[at], at === 0 ? right[at] : undefined),
      at > right.length ? h("div") : callCell(other, right[at], at === 0 ? left[at] : undefined),
    ),
  );
  const hidden = Math.max(one.calls.length, other.calls.length) - count - PAIRS;
  return h(
    "section",
    { class: "conversation" },
    h(
      "header",
      { class: "sub-head" },
      h("h2", { text: "Calls" }),
      h("span", { class: "muted", text: note(count, "call", !pairs.length) }),
    ),
    pairs,
    hidden > 0 && h("p", { class: "muted", text: `${hidden} further calls are not shown.` }),
  );
}

/**
 * A call, with the parameters and the messages that its counterpart does not have.
 * @param {Side} side @param {import("./calls.js").Call} [call] @param {import("./calls.js").Call} [counterpart]
 */
function callCell({ session }, call, counterpart) {
  if (!call) return h("div", { class: "pair-cell missing muted", text: "No further call." });
  const { messages, answer, error, usage, took } = recordOf(call);
  const facts = [
    usage && `${compact(usage.input_tokens ?? 0)} → ${compact(usage.output_tokens ?? 0)} tokens`,
    typeof usage?.cost === "number" && money(usage.cost),
    duration(took),
    Array.isArray(messages) && `${messages.length} ${messages.length === 1 ? "message" : "messages"}`,
  ];
  const parameters = counterpart ? changedParameters(call, counterpart) : [];
  const there = counterpart && recordOf(counterpart).messages;
  const known = new Set(Array.isArray(there) ? there.map(plain) : []);
  const own =
    Array.isArray(there) && Array.isArray(messages) ? messages.filter((message) => !known.has(plain(message))) : [];
  const results = new Map(
    call.tools.filter((tool) => tool.result).map((tool) => [tool.row.value?.tool_id, tool.result.value?.tool_output]),
  );
  return h(
    "div",
    { class: "pair-cell" },
    h(
      "header",
      { class: "sub-head" },
      h(
        "h3",
        {},
        h("a", { href: address({ run: session.id, call: call.key }), text: `${call.agent}: call ${call.number}` }),
      ),
      h("small", { text: facts.filter(Boolean).join(" · ") }),
      h("small", { class: "of-run", text: session.id }),
    ),
    parameters.length > 0 && h("small", { text: "Parameters that differ" }),
    parameters.length > 0 &&
      h(
        "dl",
        { class: "facts" },
        parameters.map(([name, value]) =>
          h("div", {}, h("dt", { text: name }), h("dd", { text: value === undefined ? "not set" : brief(value, 300) })),
        ),
      ),
    own.length > 0 && h("small", { text: "Messages that only this run has" }),
    own.slice(0, PAIRS).map((message) => messageCard(message)),
    own.length > 0 && h("small", { text: "Answer" }),
    error && h("p", { class: "failure-text", text: error }),
    answer && "role" in answer && messageCard(answer, { results }),
  );
}

/** @param {Side} one @param {Side} other */
function events(one, other) {
  const count = shared(one.rows, other.rows, rowKey);
  const cell = ({ session }, row) =>
    row && [
      h("a", { href: address({ run: session.id, event: row.id }), text: shortName(row.type) }),
      h("span", {
        class: "muted",
        text: ` ${[row.path, row.step].filter(Boolean).join(" / ") || "run"} · ${brief(row.value ?? {}, 160)}`,
      }),
    ];
  const length = Math.max(one.rows.length, other.rows.length) - count;
  const rows = Array.from({ length: Math.min(length, 2 * PAIRS) }, (_, at) => [
    String(count + at + 1),
    cell(one, one.rows[count + at]) ?? "–",
    cell(other, other.rows[count + at]) ?? "–",
  ]);
  return h(
    "section",
    { class: "card" },
    h(
      "header",
      { class: "sub-head" },
      h("h2", { text: "Events" }),
      h("span", { class: "muted", text: note(count, "event", !length) }),
    ),
    rows.length > 0 && table(["", one.session.id, other.session.id], rows),
    length > 2 * PAIRS && h("p", { class: "muted", text: `${length - 2 * PAIRS} further events are not shown.` }),
  );
}
