// Summary of the run: input, result, and usage of its steps and agents.

import { prose } from "./chat.js";
import { fill, h } from "./dom.js";
import { compact, duration, money, number } from "./format.js";
import { traceback } from "./errors_view.js";
import { linked, sourceList, sourcesOf } from "./sources.js";
import { quantile, sums } from "./usage.js";
import { rawJson, valueTree } from "./value_tree.js";

/** @param {import("./session.js").Session} session @param {HTMLElement} place */
export function showSummary(session, place) {
  const { model, instant } = session;
  const started = model.entries.find((entry) => entry.kind === "started" && !entry.path);
  const ended = model.entries.find((entry) => entry.kind === "ended" && !entry.path && entry.commit <= instant.commit);
  const input = started?.events?.[0];
  const output = ended?.events?.[0];
  const { steps, agents } = sums(model, instant.time);
  const fetched = (entry) =>
    session.source.embedded ? null : async () => (await session.whole(entry))?.events?.[0]?.value;
  fill(
    place,
    h(
      "div",
      { class: "pair" },
      h(
        "section",
        { class: "card" },
        h("h3", { text: "Given" }),
        input
          ? [
              h("p", { class: "muted", text: input.type }),
              valueTree(input.value, { open: 2, fetch: fetched(started) }),
              rawJson(input.value),
            ]
          : h("p", { class: "muted", text: "Nothing yet." }),
      ),
      h("section", { class: "card" }, h("h3", { text: "Came of it" }), ...outcome(session, ended, output, fetched)),
    ),
    agents.length > 0 && table("Agents", agents, true),
    table(
      "Steps",
      steps,
      steps.some((sum) => sum.calls),
    ),
  );
}

function outcome(session, ended, output, fetched) {
  const { handler } = session;
  if (!output)
    return [
      h("p", {
        class: "muted",
        text: session.live
          ? "It is still running."
          : handler.status === "running"
            ? "It had not ended."
            : "Not at this moment.",
      }),
    ];
  const { exception } = output.value ?? {};
  if (exception) {
    return [
      traceback({
        error: exception.exception_type ?? output.type,
        message: exception.exception_message ?? "",
        traceback: exception.traceback ?? "",
      }),
      valueTree({ ...output.value, exception: undefined }, { open: 1 }),
    ];
  }
  const result = output.type === "StopEvent" && "result" in (output.value ?? {}) ? output.value.result : output.value;
  const fetch = fetched(ended);
  const inside =
    fetch &&
    (async () => {
      const value = await fetch();
      return output.type === "StopEvent" ? value?.result : value;
    });
  // Large values are cut in the trace, and not in the run.
  const answer = handler.result?.value?.result ?? result;
  const sources = sourcesOf(answer);
  return [
    sources.length > 0 && linked(h("div", {}, prose(answer.response), h("h4", { text: "Sources" }), sourceList(sources))),
    h("p", { class: "muted", text: output.type }),
    valueTree(result, { open: sources.length ? 0 : 2, fetch: inside }),
    rawJson(output.value),
  ];
}

/** @param {string} title @param {import("./usage.js").Sum[]} rows @param {boolean} withTokens */
function table(title, rows, withTokens) {
  const names = [
    "Name",
    "Attempts",
    "Failed",
    "Busy",
    "Median",
    "p95",
    "Waited",
    ...(withTokens ? ["Calls", "Tokens in", "out", "Cost"] : []),
  ];
  const line = (sum) => [
    [sum.path, sum.name].filter(Boolean).join(" / "),
    number(sum.attempts),
    sum.failed ? number(sum.failed) : "–",
    duration(sum.busy),
    duration(quantile(sum.times, 0.5)),
    duration(quantile(sum.times, 0.95)),
    sum.waited ? duration(sum.waited) : "–",
    ...(withTokens
      ? [
          sum.calls ? number(sum.calls) : "–",
          sum.calls ? compact(sum.input) : "–",
          sum.calls ? compact(sum.output) : "–",
          money(sum.cost),
        ]
      : []),
  ];
  const head = h(
    "tr",
    {},
    names.map((name, index) => h("th", { scope: "col", class: index ? "num" : "", text: name })),
  );
  const body = rows.slice(0, 60).map((sum) =>
    h(
      "tr",
      {},
      line(sum).map((text, index) => (index ? h("td", { class: "num", text }) : h("th", { scope: "row", text }))),
    ),
  );
  return h(
    "section",
    { class: "card wide" },
    h("h3", { text: title }),
    h(
      "div",
      { class: "table-frame", tabindex: 0, role: "region", "aria-label": title },
      h("table", {}, h("thead", {}, head), h("tbody", {}, body)),
    ),
  );
}
