// Errors, with tracebacks and the attempts before and after.

import { callTree } from "./calls.js";
import { button, fill, h } from "./dom.js";
import { brief, clock, duration, shortName, textOf } from "./format.js";
import { address, place } from "./router.js";
import { mark } from "./status.js";
import { attemptRow } from "./selection.js";

/** Characters of an error that are shown at once. */
const ROOM = 240;

/** The text of an error; a long one is folded. @param {string} text */
export function errorText(text) {
  const short = brief(text, ROOM);
  if (!short.endsWith("…") && !text.includes("\n")) return h("span", { text });
  return h("details", { class: "long-error" }, h("summary", { text: short }), h("pre", { text, tabindex: 0 }));
}

/** A failure in full. @param {any} outcome of an entry, or of a failed run */
export function traceback(outcome) {
  return h(
    "div",
    { class: "failure" },
    h(
      "p",
      { class: "failure-text" },
      h("b", { text: shortName(outcome.error) }),
      outcome.message ? `: ${outcome.message}` : "",
    ),
    outcome.traceback && h("div", { class: "traceback", tabindex: 0 }, folded(outcome.traceback)),
  );
}

const FRAME = /^\s*File "([^"]+)", line \d+/;
const OF_ENGINE =
  /[\\/]batonflow[\\/](?:agents|cli|draw|durable|instrumentation|llms|server|testing|tools|tracing|values|workflow_core|bridge|threads)\b/;

/** A traceback in which frames of the engine in a row are folded, unless it has no other. @param {string} text */
function folded(text) {
  /** @type {{engine: boolean, frames: number, lines: string[]}[]} */ const parts = [];
  for (const line of text.split("\n")) {
    const file = FRAME.exec(line)?.[1];
    const last = parts.at(-1);
    const engine = file === undefined ? Boolean(last?.engine) && line.startsWith("    ") : OF_ENGINE.test(file);
    if (last?.engine === engine) last.lines.push(line);
    else parts.push({ engine, frames: 0, lines: [line] });
    if (file !== undefined) parts.at(-1).frames += 1;
  }
  const open = !parts.some((part) => part.frames && !part.engine);
  return parts.map(({ engine, frames, lines }) => {
    const code = h("pre", { text: lines.join("\n") });
    if (!engine) return code;
    return h("details", { open }, h("summary", { text: `${frames} ${frames === 1 ? "frame" : "frames"} of batonflow` }), code);
  });
}

/** Deliveries with an attempt that failed, each with all its attempts. @param {import("./model.js").RunModel} model */
export function troubles(model) {
  /** @type {Map<string, import("./model.js").Attempt[]>} */ const found = new Map();
  for (const attempt of model.attempts) {
    const key = `${attempt.path}\n${attempt.step}\n${attempt.item}`;
    if (found.has(key)) found.get(key).push(attempt);
    else found.set(key, [attempt]);
  }
  return [...found.values()].filter((attempts) => attempts.some((attempt) => attempt.state === "failed"));
}

/** Failed tool calls; the agent reads the error and continues. @param {import("./model.js").RunModel} model */
export function failedCalls(model) {
  const found = new Map();
  for (const row of model.rows) {
    if (row.type !== "ToolCallResult" || !row.event || !row.value?.tool_output?.is_error) continue;
    // One result is both streamed and returned.
    const key = `${row.path}\n${row.value.tool_id}\n${row.attempt?.key ?? row.id}`;
    if (!found.has(key) || row.how === "returned") found.set(key, row);
  }
  return [...found.values()];
}

/** @param {import("./session.js").Session} session @param {HTMLElement} element */
export function showErrors(session, element) {
  const { model, handler } = session;
  const failures = troubles(model).slice(0, 60);
  const tools = failedCalls(model).slice(0, 60);
  const { calls } = tools.length || failures.length ? callTree(model, Infinity, session.live) : { calls: [] };
  const cards = failures.map((attempts) => card(session, attempts, calls));
  const end =
    handler.status === "failed" && !cards.length && handler.error
      ? h(
          "article",
          { class: "card" },
          h(
            "p",
            { class: "failure-text" },
            h("b", { text: shortName(handler.error_type) || "Error" }),
            `: ${handler.error}`,
          ),
        )
      : null;
  const toolCards = tools.map((row) => callCard(session, row, calls));
  const nothing = !cards.length && !tools.length && !end && h("p", { class: "empty", text: "Nothing failed." });
  fill(element, end, cards, toolCards, nothing);
}

/**
 * A tool call that failed, with a link to the model call that asked for it.
 * @param {import("./session.js").Session} session @param {import("./model.js").Row} row @param {import("./calls.js").Call[]} calls
 */
function callCard(session, row, calls) {
  const { tool_name: name, tool_output: output } = row.value;
  const call = calls.find((one) => one.tools.some((tool) => tool.attempt && tool.attempt === row.attempt));
  return h(
    "article",
    { class: "card" },
    h(
      "header",
      {},
      h("h3", { text: [row.agent, name].filter(Boolean).join(" / ") }),
      mark("failed"),
      h("span", { class: "spring" }),
      button("Show", () => session.select(row), { class: "quiet" }),
      call && opener(call),
    ),
    h("p", { class: "failure-text", text: textOf(output) || "The tool did not give a reason." }),
    h("p", { class: "muted", text: "The agent read the error and continued." }),
  );
}

/** A link to the page of a call. @param {import("./calls.js").Call} call */
const opener = ({ key }) =>
  h("a", { class: "button quiet", href: address({ ...place(), call: key }), "data-call": key, text: "Open the call" });

/**
 * A delivery with an attempt that failed, with a link to the model call that failed in it.
 * @param {import("./session.js").Session} session @param {import("./model.js").Attempt[]} attempts @param {import("./calls.js").Call[]} calls
 */
function card(session, attempts, calls) {
  const { model } = session;
  const last = attempts.at(-1);
  const failed = attempts.filter((attempt) => attempt.state === "failed");
  const [final] = failed.slice(-1);
  const call = calls.find((one) => one.attempt === final);
  const outcome = final.entries.at(-1).outcome;
  const then =
    last.state === "failed" ? "The run went no further here." : `Attempt ${last.attempt + 1}: ${last.state}.`;
  return h(
    "article",
    { class: "card" },
    h(
      "header",
      {},
      h("h3", { text: [last.path, last.step].filter(Boolean).join(" / ") }),
      mark(last.state === "failed" ? "failed" : "recovered"),
      h("span", { class: "spring" }),
      button("Show", () => session.select(attemptRow(model, final)), { class: "quiet" }),
      call && opener(call),
    ),
    attempts.length > 1 &&
      h(
        "ol",
        { class: "history" },
        attempts.map((attempt) => line(attempt)),
      ),
    attempts.length > 1 && h("p", { class: "muted", text: then }),
    traceback(outcome),
  );
}

/** @param {import("./model.js").Attempt} attempt */
function line(attempt) {
  const outcome = attempt.entries.at(-1).outcome;
  return h(
    "li",
    {},
    h("time", { text: clock(attempt.began) }),
    h("span", { class: "muted", text: duration(attempt.end - attempt.began) }),
    h("span", { text: attempt.state === "failed" ? `${shortName(outcome.error)}: ${outcome.message}` : attempt.state }),
  );
}
