// The list of events, with its search and its filters.

import { fill, h, oncePerFrame } from "./dom.js";
import { brief, duration, shortName, textOf } from "./format.js";
import { Rows } from "./rows.js";

const HOWS = {
  "": "All kinds",
  flow: "Between steps",
  streamed: "On the stream",
  failed: "Failures",
  outside: "From outside",
};
const FLOW = new Set(["returned", "sent", "came", "answered"]);

/** @typedef {import("./model.js").Row} Row */

export class EventList {
  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.search = h("input", {
      type: "search",
      class: "search",
      placeholder: "Search events  /",
      "aria-label": "Search events",
      autocomplete: "off",
    });
    this.steps = h("select", { "aria-label": "Step" });
    this.types = h("select", { "aria-label": "Type" });
    this.hows = h(
      "select",
      { "aria-label": "Kind" },
      Object.entries(HOWS).map(([value, text]) => h("option", { value, text })),
    );
    this.count = h("span", { class: "muted count-text", "aria-live": "polite" });
    this.rows = new Rows({
      label: "Events",
      roles: ["listbox", "option"],
      cells: ["r-time", "r-commit", "r-step", "r-type", "r-brief", "r-how"],
      write: (line, row) => show(line, row, session),
      chosen: () => this.#placeOf(session.selected),
      choose: (row) => session.select(row),
    });
    this.list = this.rows.element;
    this.element = h(
      "div",
      { class: "events" },
      h("div", { class: "filters" }, this.search, this.steps, this.types, this.hows, this.count),
      this.list,
    );
    const gather = oncePerFrame(() => this.#gather());
    session.on("data", gather);
    session.on("filter", gather);
    session.on("instant", () => this.#toInstant());
    session.on("select", () => this.#toSelected());
    this.#listen();
  }

  leave() {
    this.rows.leave();
  }

  render() {
    this.rows.render();
  }

  /** Selects another row of the list. @param {number} steps */
  step(steps) {
    this.rows.step(steps);
  }

  #listen() {
    const { session } = this;
    this.search.addEventListener("input", () => session.narrow({ text: this.search.value }));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "ArrowDown") {
        event.preventDefault();
        this.list.focus();
        if (!session.selected) this.step(1);
      }
    });
    this.steps.addEventListener("change", () => session.narrow({ step: this.steps.value }));
    this.types.addEventListener("change", () => session.narrow({ type: this.types.value }));
    this.hows.addEventListener("change", () => session.narrow({ how: this.hows.value }));
  }

  #gather() {
    const { session } = this;
    const all = session.rows();
    this.#offer(all);
    const { filter } = session;
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const plain = !words.length && !filter.step && !filter.type && !filter.how;
    this.rows.items = plain ? all : all.filter((row) => fits(row, filter, words));
    this.count.textContent = plain ? `${all.length}` : `${this.rows.items.length} of ${all.length}`;
    if (this.search.value !== filter.text) this.search.value = filter.text;
    if (session.live && this.rows.follows && session.instant.newest) this.rows.toEnd();
    this.rows.renderNow();
  }

  /** The names that can be chosen. @param {Row[]} all */
  #offer(all) {
    const { filter } = this.session;
    const [steps, types] = [new Set(), new Set()];
    for (const row of all) {
      if (row.step) steps.add(row.step);
      types.add(row.type);
    }
    options(this.steps, "All steps", steps, filter.step);
    options(this.types, "All types", types, filter.type);
    this.hows.value = filter.how;
  }

  /** @param {Row | null} row */
  #placeOf(row) {
    if (!row) return -1;
    const at = this.rows.items.indexOf(row);
    return at >= 0 || row.how !== "attempt" ? at : this.rows.items.findIndex((one) => one.attempt === row.attempt);
  }

  /** Scrolls to the last row of the chosen instant. */
  #toInstant() {
    const { instant } = this.session;
    let [low, high] = [0, this.rows.items.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.rows.items[middle].commit ?? Infinity) <= instant.commit) low = middle + 1;
      else high = middle;
    }
    this.rows.reveal(instant.newest ? this.rows.items.length - 1 : low - 1);
    this.render();
  }

  #toSelected() {
    const at = this.#placeOf(this.session.selected);
    if (at >= 0) this.rows.reveal(at);
    this.render();
  }
}

/** @param {Row} row @param {import("./session.js").Session["filter"]} filter @param {string[]} words */
function fits(row, filter, words) {
  if (filter.step && row.step !== filter.step) return false;
  if (filter.type && row.type !== filter.type) return false;
  if (filter.how === "flow" && !FLOW.has(row.how)) return false;
  if (filter.how === "streamed" && row.seq === null) return false;
  if (filter.how === "failed" && row.kind !== "failure" && !row.type.includes("Failed")) return false;
  if (filter.how === "outside" && row.step) return false;
  if (!words.length) return true;
  row.text ??= `${row.type} ${row.step} ${row.agent} ${row.path} ${JSON.stringify(row.value ?? "")}`.toLowerCase();
  return words.every((word) => row.text.includes(word));
}

/** @param {any} line @param {Row} row @param {import("./session.js").Session} session */
function show(line, row, { instant, model: { from } }) {
  line.classList.toggle("future", row.commit !== null && row.commit > instant.commit);
  if (!line.moved && row.commit !== null) return;
  // Equal values are not written: every write makes the browser compute the layout of the row again.
  if (line.dataset.kind !== row.kind) line.dataset.kind = row.kind;
  if (line.dataset.how !== row.how) line.dataset.how = row.how;
  const [time, commit, step, type, content, how] = line.cells;
  time.textContent = row.at > from ? `+${duration(row.at - from)}` : row.at < from ? "before" : "0";
  commit.textContent = row.commit ?? "…";
  step.textContent = [row.path, row.step, row.agent].filter(Boolean).join(" · ") || "run";
  type.textContent = shortName(row.type);
  content.textContent = summary(row);
  how.textContent = row.how;
}

/** The text of a row, in one line. @param {Row} row */
function summary(row) {
  const { value } = row;
  if (row.kind === "failure") return value.message || "";
  if (row.type === "AgentStream") return brief(value?.response || value?.delta || toolNames(value), 200);
  if (row.type === "AgentOutput") return brief(textOf(value?.response) || toolNames(value), 200);
  if (row.type === "ToolCall") return `${value?.tool_name ?? ""}(${brief(value?.tool_kwargs, 160)})`;
  if (row.type === "ToolCallResult")
    return `${value?.tool_name ?? ""} → ${brief(textOf(value?.tool_output), 160)}`;
  const asked = Array.isArray(value?.input) && textOf(value.input.at(-1));
  if (asked) {
    return `${value.input.length} ${value.input.length > 1 ? "messages" : "message"} · ${brief(asked, 160)}`;
  }
  if (row.how === "recorded" && value?.blocks) return brief(textOf(value), 200);
  return brief(value ?? {}, 200);
}

/** @param {any} value */
const toolNames = (value) =>
  (value?.tool_calls ?? []).map?.((call) => `${call.tool_name}(${brief(call.tool_kwargs, 80)})`).join(", ") ?? "";

/** @param {any} select @param {string} all @param {Set<string>} names @param {string} chosen */
function options(select, all, names, chosen) {
  const wanted = [...names].sort();
  const key = wanted.join("\n");
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    fill(
      select,
      h("option", { value: "", text: all }),
      wanted.map((name) => h("option", { value: name, text: shortName(name) })),
    );
  }
  select.value = chosen;
}
