// The tree of calls: agents, calls of models, and calls of tools, with tokens, cost and time.

import { h, icon } from "./dom.js";
import { callTree, recordOf, sumOf } from "./calls.js";
import { prose } from "./chat.js";
import { brief, compact, duration, money, textOf } from "./format.js";
import { address, place } from "./router.js";
import { Rows } from "./rows.js";
import { attemptRow } from "./selection.js";

/**
 * @typedef {import("./calls.js").Call | import("./calls.js").ToolCall | import("./calls.js").Group} Node
 * @typedef {{node: Node, depth: number, folds: boolean}} Item
 */

const CELLS = ["n-name", "n-brief", "n-tokens", "n-cost", "n-time", "n-open"];

/** Returns true if models were called, or an agent speaks. @param {import("./session.js").Session} session */
export const hasCalls = (session) =>
  session.model.entries.some((entry) => entry.calls?.length) ||
  session.rows().some((row) => row.type === "AgentOutput" || row.type === "AgentStream");

export class CallsView {
  /** @type {Set<string>} */ #folded = new Set();
  #chosen = "";
  #shown = "";

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.rows = new Rows({
      label: "Calls",
      roles: ["tree", "treeitem"],
      css: "node",
      cells: CELLS,
      write: (line, item) => write(line, item, this.#folded.has(item.node.key)),
      chosen: () => this.#place(),
      choose: (item) => this.#choose(item),
      key: (name) => this.#key(name),
    });
    const titles = ["Agents, models, tools", "", "Tokens", "Cost", "Time", ""];
    const head = h(
      "div",
      { class: "row-head node", "aria-hidden": "true" },
      titles.map((text, at) => h("span", { class: CELLS[at], text })),
    );
    this.empty = h("p", { class: "empty", text: "No model was called up to this moment." });
    this.live = h("div", { class: "speaking", "aria-live": "polite" });
    this.element = h("div", { class: "events calls" }, head, this.empty, this.rows.element, this.live);
    session.on("select", () => this.#toSelected());
  }

  show() {
    const { model, instant, live } = this.session;
    const shown = [model.entries.length, instant.commit, live, ...this.#folded].join();
    // Pieces of answers come often, and change no line.
    if (shown !== this.#shown) this.#tree();
    this.#shown = shown;
    this.rows.renderNow();
    this.#speaking();
  }

  #tree() {
    const { session } = this;
    const { model, instant } = session;
    const tree = callTree(model, instant.time, session.live);
    /** @type {Item[]} */ const items = [];
    for (const group of tree.groups) this.#add(items, group, 0);
    this.element.classList.toggle("free", sumOf(tree.calls).cost === null);
    const grown = items.length > this.rows.items.length;
    this.rows.items = items;
    this.empty.hidden = items.length > 0;
    this.rows.element.hidden = !items.length;
    if (grown && session.live && this.rows.follows && instant.newest) this.rows.toEnd();
  }

  /** @param {Item[]} items @param {Node} node @param {number} depth */
  #add(items, node, depth) {
    const inside = node.kind === "agent" ? node.calls : node.kind === "call" ? node.tools : node.groups;
    items.push({ node, depth, folds: inside.length > 0 });
    if (this.#folded.has(node.key)) return;
    for (const one of inside) this.#add(items, one, depth + 1);
  }

  /** The answers that are being streamed, and the steps that wait for a model. */
  #speaking() {
    const { tail, instant, live, running, model } = this.session;
    const now = instant.newest && live;
    const rows = now ? tail.filter((row) => row.type === "AgentStream") : [];
    const steps = new Set([
      "run_agent_step",
      ...model.entries.filter((entry) => entry.calls).map((entry) => entry.step),
    ]);
    const asking = now && !rows.length ? [...running.values()].filter((one) => steps.has(one.step)) : [];
    const cards = rows
      .slice(-3)
      .map((row) =>
        h(
          "article",
          { class: "message assistant live" },
          h("header", {}, h("b", { text: row.agent || "agent" }), h("small", { text: "speaking" })),
          prose((row.value?.response ?? "").slice(-4000), { raw: true }),
        ),
      );
    const waits = asking.map(({ path, step }) =>
      h("p", { class: "muted", text: `${[path, step].filter(Boolean).join(" / ")} waits for the model.` }),
    );
    this.live.replaceChildren(...cards, ...waits);
  }

  /** The place of the chosen node, or of a node of the selected attempt. */
  #place() {
    const { selected } = this.session;
    const at = this.rows.items.findIndex((item) => item.node.key === this.#chosen);
    const node = this.rows.items[at]?.node;
    if (node?.kind === "agent" || (node && node.attempt === selected?.attempt)) return at;
    if (!selected?.attempt) return -1;
    return this.rows.items.findIndex(({ node: one }) => one.kind !== "agent" && one.attempt === selected.attempt);
  }

  /** @param {Item} item */
  #choose({ node }) {
    const { session } = this;
    this.#chosen = node.key;
    if (node.kind === "tool") session.select(node.result ?? node.row);
    else if (node.kind === "call") session.select(node.attempt ? attemptRow(session.model, node.attempt) : node.row);
    this.rows.reveal(this.#place());
    this.rows.render();
  }

  /** @param {string} name */
  #key(name) {
    const item = this.rows.items[this.#place()];
    if (!item) return false;
    const { node } = item;
    const folded = this.#folded.has(node.key);
    if (name === "Enter" && node.kind === "call") this.session.openCall(node.key);
    else if (
      item.folds &&
      ((name === "ArrowRight" && folded) || (name === "ArrowLeft" && !folded) || name === "Enter" || name === " ")
    )
      this.#fold(node.key);
    else if (name === "ArrowLeft") this.#toParent(item);
    else if (name === "ArrowRight") this.rows.step(1);
    else return false;
    return true;
  }

  /** @param {string} key */
  #fold(key) {
    if (!this.#folded.delete(key)) this.#folded.add(key);
    this.show();
  }

  /** @param {Item} item */
  #toParent(item) {
    const { items } = this.rows;
    const above = items.slice(0, items.indexOf(item)).findLast((one) => one.depth < item.depth);
    if (above) this.#choose(above);
  }

  #toSelected() {
    const at = this.#place();
    if (at >= 0) this.rows.reveal(at);
    this.rows.render();
  }

  leave() {
    this.rows.leave();
  }
}

/** @param {any} line @param {Item} item @param {boolean} folded */
function write(line, { node, depth, folds }, folded) {
  const [name, content, tokens, cost, time, open] = line.cells;
  line.dataset.kind = node.kind;
  line.setAttribute("aria-level", String(depth + 1));
  if (folds) line.setAttribute("aria-expanded", String(!folded));
  else line.removeAttribute("aria-expanded");
  line.style.setProperty("--depth", String(depth));
  const told = { agent: ofAgent, call: ofCall, tool: ofTool }[node.kind](/** @type {any} */ (node));
  line.dataset.state = told.state;
  name.replaceChildren(
    h("i", { class: folds ? "fold" : "leafless", "aria-hidden": "true" }),
    h("b", { text: told.name }),
    told.note && h("small", { text: told.note }),
  );
  content.textContent = told.brief;
  tokens.textContent = told.sum?.used ? `${compact(told.sum.input)} → ${compact(told.sum.output)}` : "";
  cost.textContent = typeof told.sum?.cost === "number" ? money(told.sum.cost) : "";
  time.textContent = told.time;
  open.replaceChildren(...(node.kind === "call" ? [opener(node)] : []));
}

/** @param {import("./calls.js").Call} call */
const opener = (call) =>
  h(
    "a",
    {
      class: "opener",
      href: address({ ...place(), call: call.key }),
      "data-call": call.key,
      tabindex: -1,
      title: "Open the call",
      "aria-label": `Open call ${call.number} of ${call.agent}`,
    },
    icon("on"),
  );

/** @param {import("./calls.js").Group} group */
function ofAgent(group) {
  const all = (groups) =>
    groups.flatMap((one) => one.calls.flatMap((call) => [call, ...call.tools.flatMap((tool) => all(tool.groups))]));
  const calls = all([group]);
  const sum = sumOf(calls);
  const tools = calls.reduce((count, call) => count + call.tools.length, 0);
  const counts = [many(calls.length, "call"), tools && many(tools, "tool call")];
  const note = group.path.split("/").pop() === group.name ? "" : group.path;
  return {
    name: group.name,
    note,
    brief: counts.filter(Boolean).join(" · "),
    sum,
    time: duration(sum.end - sum.began),
    state: "",
  };
}

/** @param {number} count @param {string} noun */
const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** @param {import("./calls.js").Call} call */
function ofCall(call) {
  const record = recordOf(call);
  const asked = call.tools.map((tool) => tool.name);
  const said = record.error ?? (textOf(record.answer) || (asked.length ? `calls ${asked.join(", ")}` : ""));
  const note = [record.model, call.purpose !== "turn" && call.purpose].filter(Boolean).join(" · ");
  const state = record.error ? "failed" : "";
  return {
    name: `Call ${call.number}`,
    note,
    brief: brief(said, 200),
    sum: sumOf([{ ...call, tools: [] }]),
    time: duration(record.took),
    state,
  };
}

/** The kinds of the blocks of an output without text. @param {any} output */
const kinds = (output) => (output?.blocks ?? []).map((block) => block.block_type).join(" ");

/** @param {import("./calls.js").ToolCall} tool */
function ofTool(tool) {
  const output = tool.result?.value?.tool_output;
  const known = tool.state === "completed" || tool.state === "failed";
  const outcome = known ? ` → ${brief(textOf(output) || kinds(output), 120)}` : "";
  const time = known && tool.end !== null ? duration(tool.end - tool.began) : "";
  return {
    name: tool.name,
    note: { completed: "", failed: "error", cancelled: "unfinished" }[tool.state] ?? tool.state,
    brief: `(${brief(tool.args ?? {}, 80)})${outcome}`,
    sum: null,
    time,
    state: tool.state,
  };
}
