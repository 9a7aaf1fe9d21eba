// The filters of the list of runs: a search, choices, and further conditions that are folded away.

import { button, h } from "./dom.js";
import { shortName } from "./format.js";
import { place } from "./router.js";

const STATUSES = ["running", "ready", "waiting", "held", "completed", "failed", "cancelled"];
const LABELS = { running: "unfinished" }; // this status has ready, waiting and held runs, too
const PAUSE = 300;

// The folded conditions: name in the address, label, kind of the field, example.
const FURTHER = [
  ["model", "Model", "text", "gpt"],
  ["error", "Error", "text", "timed out"],
  ["metadata", "Metadata", "text", "user=ann"],
  ["since", "From", "date", ""],
  ["until", "To", "date", ""],
  ["min_cost", "Cost from ($)", "number", "0.01"],
  ["max_cost", "Cost to ($)", "number", "1"],
];
const COSTS = new Set(["min_cost", "max_cost"]);
const NAMES = ["text", "status", "workflow", ...FURTHER.map(([name]) => name)];

/** The filters in the address. @returns {Record<string, string>} */
export function filtersOf() {
  const given = place();
  const fits = (name) => !COSTS.has(name) || Number(given[name]) >= 0;
  return Object.fromEntries(NAMES.map((name) => [name, fits(name) ? (given[name] ?? "") : ""]));
}

/** The query of a request for filters; days begin at midnight of this place. @param {Record<string, string>} filter */
export function queryOf(filter) {
  const { workflow, since, until, ...same } = filter;
  const query = { ...same, workflow_name: workflow, since: startOf(since, 0), until: startOf(until, 1) };
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value));
}

/** @param {string} day @param {number} later */
function startOf(day, later) {
  const [year, month, date] = (day ?? "").split("-").map(Number);
  const time = new Date(year, month - 1, date + later);
  return Number.isNaN(time.getTime()) ? "" : time.toISOString();
}

/**
 * The fields of the filters.
 * @param {Record<string, string>} filter @param {(changed: Record<string, string>) => void} narrow
 * @param {() => Promise<string[]>} workflows
 * @returns {{controls: HTMLElement[], further: HTMLElement, refresh: () => Promise<void>,
 *   offer: (names: string[]) => void}}
 */
export function filterFields(filter, narrow, workflows) {
  const search = field("text", "Search", "search", "Search the contents of runs", filter.text, narrow);
  const status = choice("Status", STATUSES, filter.status, (value) => narrow({ status: value }), LABELS);
  const known = filter.workflow ? [filter.workflow] : [];
  const workflow = choice("Workflow", known, filter.workflow, (value) => narrow({ workflow: value }));
  /** @param {string[]} names of workflows that can be chosen */
  const offer = (names) => {
    const select = workflow.querySelector("select");
    const offered = new Set([...select.options].map((option) => option.value));
    for (const name of new Set(names)) {
      if (!offered.has(name)) select.append(h("option", { value: name, text: shortName(name) }));
    }
  };
  const open = FURTHER.some(([name]) => filter[name]);
  const further = h(
    "div",
    { class: "runs-further", id: "runs-further", hidden: !open },
    FURTHER.map(([name, label, kind, example]) =>
      h(
        "label",
        {},
        h("span", { text: label }),
        field(name, label, kind, example, filter[name], narrow),
        name === "metadata" && h("span", { class: "problem", role: "alert" }),
      ),
    ),
    button("Clear the filters", () => {
      for (const input of [...further.querySelectorAll("input"), search]) input.value = "";
      for (const select of [status, workflow]) select.querySelector("select").value = "";
      narrow(Object.fromEntries(NAMES.map((name) => [name, ""])));
    }),
  );
  const more = button("More filters", () => {
    further.hidden = !further.hidden;
    more.setAttribute("aria-expanded", String(!further.hidden));
  });
  more.setAttribute("aria-expanded", String(open));
  more.setAttribute("aria-controls", "runs-further");
  return {
    controls: [search, status, workflow, more],
    further,
    refresh: async () => offer(await workflows()),
    offer,
  };
}

/**
 * A field that narrows the list a moment after the last key.
 * @param {string} name @param {string} label @param {string} kind @param {string} example @param {string} value
 * @param {(changed: Record<string, string>) => void} narrow
 */
function field(name, label, kind, example, value, narrow) {
  let timer = 0;
  const tell = () => {
    clearTimeout(timer);
    if (name === "metadata")
      input.nextSibling.textContent = input.validity.valid ? "" : "Write it as name=value.";
    if (input.validity.valid) narrow({ [name]: input.value.trim() });
  };
  const changed = () => {
    input.reportValidity();
    tell();
  };
  const input = h("input", {
    type: kind,
    "aria-label": label,
    placeholder: example,
    value,
    maxlength: kind === "text" || kind === "search" ? "1000" : null,
    min: kind === "number" ? "0" : null,
    max: kind === "date" ? "9999-12-30" : null,
    step: kind === "number" ? "any" : null,
    pattern: name === "metadata" ? "[^=]+=.*" : null,
    title: name === "metadata" ? "name=value" : null,
    on: {
      change: changed,
      input: () => {
        clearTimeout(timer);
        timer = setTimeout(tell, PAUSE);
      },
    },
  });
  return input;
}

/** @param {string} label @param {string[]} options @param {string} chosen @param {(value: string) => void} changed @param {Record<string, string>} [labels] */
function choice(label, options, chosen, changed, labels = {}) {
  const select = h(
    "select",
    { "aria-label": label, on: { change: () => changed(select.value) } },
    h("option", { value: "", text: `${label}: all` }),
    options.map((name) => h("option", { value: name, text: labels[name] ?? shortName(name), selected: name === chosen })),
  );
  return h("span", { class: "choice" }, select);
}
