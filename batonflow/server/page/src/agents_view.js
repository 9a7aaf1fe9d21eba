// Turns of agents, in order: messages, tool calls with their results, tokens, cost and duration.

import { button, fill, h } from "./dom.js";
import { brief, compact, duration, money } from "./format.js";
import { toolCall } from "./chat.js";
import { answersOf } from "./usage.js";

const SHOWN = 60;

/** Returns true if the run has events of agents. @param {import("./session.js").Session} session */
export const hasAgents = (session) =>
  session.rows().some((row) => row.type === "AgentOutput" || row.type === "AgentStream");

/** @param {import("./session.js").Session} session @param {HTMLElement} place */
export function showAgents(session, place) {
  const { model, instant } = session;
  const results = resultsOf(model, instant.time);
  const turns = answersOf(model).filter((row) => row.at <= instant.time);
  const question = model.rows.find((row) => row.entry?.kind === "started" && !row.path)?.value;
  const asked = question?.user_msg ?? question?.input;
  const cards = turns.slice(-SHOWN).map((row) => turn(session, row, results));
  const speaking = instant.newest ? session.tail.filter((row) => row.type === "AgentStream") : [];
  fill(
    place,
    asked !== undefined &&
      h(
        "article",
        { class: "message user" },
        h("header", {}, h("b", { text: "user" })),
        h("div", { class: "say", text: typeof asked === "string" ? asked : brief(asked, 2000) }),
      ),
    turns.length > SHOWN &&
      h("p", { class: "muted", text: `${turns.length - SHOWN} earlier turns are in the list of events.` }),
    cards,
    speaking.map((row) =>
      h(
        "article",
        { class: "message assistant live" },
        h("header", {}, h("b", { text: row.agent || "agent" }), h("small", { text: "speaking" })),
        h("div", { class: "say", text: row.value?.response ?? "" }),
      ),
    ),
    !cards.length && !speaking.length && h("p", { class: "empty", text: "No agent has answered at this moment." }),
  );
}

/** Results of tools by the id of their call. @param {import("./model.js").RunModel} model @param {number} time */
function resultsOf(model, time) {
  const found = new Map();
  for (const row of model.rows) {
    if (row.type === "ToolCallResult" && row.at <= time && row.value?.tool_id) {
      // Ids come from models and may occur again; a turn takes the first result behind it.
      const known = found.get(row.value.tool_id) ?? [];
      if (known.at(-1)?.attempt !== row.attempt) found.set(row.value.tool_id, [...known, row]);
    }
  }
  return found;
}

/** @param {import("./session.js").Session} session @param {import("./model.js").Row} row @param {Map<string, any[]>} results */
function turn(session, row, results) {
  const { value } = row;
  const usage = value?.usage;
  const took = row.attempt ? duration(row.attempt.end - row.attempt.began) : "";
  const facts = [
    row.entry?.calls?.map((call) => call.model).join(", "),
    took,
    usage && `${compact(usage.input_tokens ?? 0)} → ${compact(usage.output_tokens ?? 0)} tokens`,
    typeof usage?.cost === "number" && money(usage.cost),
    first(row),
  ];
  const texts = (value?.response?.blocks ?? []).filter((block) => typeof block?.text === "string" && block.text);
  const calls = Array.isArray(value?.tool_calls) ? value.tool_calls : [];
  return h(
    "article",
    { class: "message assistant" },
    h(
      "header",
      {},
      h("b", { text: row.agent || "agent" }),
      h("small", { text: facts.filter(Boolean).join(" · ") }),
      h("span", { class: "spring" }),
      button("Show", () => session.select(row), { class: "quiet" }),
    ),
    texts.map((block) => h("div", { class: "say", text: block.text })),
    calls.map((call) => {
      const result = results.get(call.tool_id)?.find((one) => one.index > row.index);
      const note = result?.attempt ? duration(result.attempt.end - result.attempt.began) : "";
      return toolCall(call.tool_name, call.tool_kwargs, result?.value?.tool_output, note);
    }),
  );
}

/** The time to the first piece of text. @param {import("./model.js").Row} row */
function first(row) {
  const stream = row.entry?.events?.find((event) => event.type === "AgentStream" && event.ts !== undefined);
  return stream && row.attempt ? `first token ${duration(stream.ts - row.attempt.began)}` : "";
}
