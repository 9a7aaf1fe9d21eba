// The calls of models in a run as a tree: agents, their calls, the tool calls that these led to, and agents inside tools.

/**
 * @typedef {import("./model.js").Row} Row
 * @typedef {import("./model.js").Attempt} Attempt
 * @typedef {{kind: "call", key: string, row: Row | null, attempt: Attempt | null, entry: import("./model.js").Entry,
 *   index: number, agent: string, path: string, purpose: string, number: number, before: Call | null,
 *   tools: ToolCall[]}} Call
 * @typedef {{kind: "tool", key: string, row: Row, attempt: Attempt | null, result: Row | null, name: string, args: any,
 *   state: string, began: number, end: number | null, groups: Group[]}} ToolCall
 * @typedef {{kind: "agent", key: string, name: string, path: string, calls: Call[]}} Group
 * @typedef {{groups: Group[], calls: Call[], byKey: Map<string, Call>}} Tree
 */

/** @param {import("./model.js").RunModel} model @param {number} [time] @param {boolean} [live] @returns {Tree} */
export function callTree(model, time = Infinity, live = false) {
  return new Builder(model, time, live).tree();
}

/** The record of a call, or its parts from the events of a run that keeps no calls. @param {Call} call @returns {import("./model.js").ModelCall} */
export function recordOf(call) {
  const kept = call.entry.calls?.[call.index];
  if (kept) return kept;
  const { value } = call.row;
  const events = call.attempt?.entries.flatMap((entry) => entry.events ?? []) ?? [];
  const messages = events.find((event) => event.type === "AgentInput")?.value?.input;
  const began = call.attempt?.began ?? call.entry.at;
  const took = (call.attempt?.end ?? began) - began;
  return { model: "", vendor: "", began, took, usage: value?.usage, messages, answer: value?.response };
}

/** The calls of one delivery of a step to one agent, in order: more than one if the first ones failed. @param {Tree} tree @param {Call} call */
export function attemptsOf(tree, call) {
  const { attempt } = call;
  if (!attempt) return [call];
  const fits = (one) =>
    one.attempt?.item === attempt.item && one.path === call.path && one.attempt.step === attempt.step;
  return tree.calls.filter((one) => fits(one) && one.agent === call.agent && one.purpose === call.purpose);
}

/** The tokens, the cost and the time of calls. @param {Call[]} calls */
export function sumOf(calls) {
  const sum = {
    input: 0,
    output: 0,
    cost: /** @type {number | null} */ (null),
    used: false,
    began: Infinity,
    end: -Infinity,
  };
  for (const call of calls) {
    const { usage, began, took } = recordOf(call);
    sum.began = Math.min(sum.began, began);
    sum.end = Math.max(sum.end, began + took, ...call.tools.map((tool) => tool.end ?? 0));
    if (!usage) continue;
    sum.used = true;
    sum.input += usage.input_tokens ?? 0;
    sum.output += usage.output_tokens ?? 0;
    if (typeof usage.cost === "number") sum.cost = (sum.cost ?? 0) + usage.cost;
  }
  return sum;
}

class Builder {
  /** @type {Map<string, ToolCall>} */ #tools = new Map();
  /** @type {Map<string, Group[]>} */ #places = new Map();
  /** @type {Map<string, Call>} */ #last = new Map();
  /** @type {Map<string, number>} */ #counts = new Map();
  /** @type {Group[]} */ #groups = [];
  /** @type {Call[]} */ #calls = [];

  /** @param {import("./model.js").RunModel} model @param {number} time @param {boolean} live */
  constructor(model, time, live) {
    Object.assign(this, { model, time, live });
    this.#places.set("", this.#groups);
  }

  /** @returns {Tree} */
  tree() {
    const { model, time } = this;
    for (const entry of model.entries) {
      if (entry.at > time) continue;
      if (entry.kind === "started" && entry.path) this.#child(entry);
      if (entry.kind === "segment" && entry.step) this.#entry(entry);
    }
    return { groups: this.#groups, calls: this.#calls, byKey: new Map(this.#calls.map((call) => [call.key, call])) };
  }

  /** @param {import("./model.js").Entry} entry */
  #entry(entry) {
    const { model } = this;
    const attempt = model.byKey.get(`${entry.path}\n${entry.step}\n${entry.item}\n${entry.attempt ?? 0}`) ?? null;
    const outputs = (entry.events ?? []).filter((event) => event.type === "AgentOutput");
    const output = outputs.find((event) => event.how === "returned") ?? outputs[0];
    const row = output ? model.rowById.get(`${entry.id}:${output.number}`) : null;
    const place = { entry, attempt, row };
    const made = (entry.calls ?? []).map((call, index) => this.#call({ ...place, index }, call.agent, call.purpose));
    if (!made.length && row) made.push(this.#call({ ...place, index: 0 }, row.agent, "turn"));
    if (made.length && row) this.#addTools(made.at(-1), row);
  }

  /** @param {any} place @param {string} [agent] @param {string} [purpose] @returns {Call} */
  #call(place, agent, purpose = "") {
    const { entry, attempt, index } = place;
    const { path } = entry;
    const name = agent || entry.step;
    const own = `${path}\n${name}`;
    const number = (this.#counts.get(own) ?? 0) + 1;
    this.#counts.set(own, number);
    const before = this.#last.get(`${own}\n${purpose}`) ?? null;
    /** @type {Call} */
    const call = {
      ...place,
      kind: "call",
      key: `${entry.id}:${index}`,
      agent: name,
      path,
      purpose,
      number,
      before,
      tools: [],
    };
    this.#last.set(`${own}\n${purpose}`, call);
    this.#calls.push(call);
    const inside = attempt && this.#tools.get(attempt.key);
    const groups = inside ? inside.groups : (this.#places.get(path) ?? this.#groups);
    const last = groups.findLast((group) => group.path === path);
    if (last?.name === name) last.calls.push(call);
    else groups.push({ kind: "agent", key: `agent:${call.key}`, name, path, calls: [call] });
    return call;
  }

  /** Adds the tool calls that the answer of a call led to. @param {Call} call @param {Row} row of the answer */
  #addTools(call, row) {
    const { model, time } = this;
    const asked = model.effectsOf(row).flatMap((parsing) => model.rowsOf(parsing));
    for (const one of asked) {
      if (one.type !== "ToolCall" || one.how === "streamed" || one.at > time) continue;
      const attempt = model.effectsOf(one).at(-1) ?? null;
      const tool = this.#tool(one, attempt);
      call.tools.push(tool);
      if (attempt) this.#tools.set(attempt.key, tool);
    }
  }

  /** @param {Row} row @param {Attempt | null} attempt @returns {ToolCall} */
  #tool(row, attempt) {
    const { model, time } = this;
    const rows = attempt ? model.rowsOf(attempt) : [];
    const results = rows.filter((one) => one.type === "ToolCallResult" && one.at <= time);
    const result = results.find((one) => one.how === "returned") ?? results[0] ?? null;
    const { tool_name: name = "tool", tool_kwargs: asked } = row.value ?? {};
    // A person may have changed the arguments.
    const args = result?.value?.tool_kwargs ?? asked;
    const began = attempt?.began ?? row.at;
    const end = result ? (attempt?.end ?? result.at) : null;
    const state = this.#state(attempt, result);
    return { kind: "tool", key: `tool:${row.id}`, row, attempt, result, name, args, state, began, end, groups: [] };
  }

  /** @param {Attempt | null} attempt @param {Row | null} result */
  #state(attempt, result) {
    if (result) return result.value?.tool_output?.is_error ? "failed" : "completed";
    if (attempt?.state === "waiting" && !this.model.ended) return "waiting";
    if (attempt?.state === "failed") return "failed";
    return this.live || this.time !== Infinity ? "running" : "cancelled";
  }

  /** Puts a child under the tool call that started it: the first one of its name that was running. @param {import("./model.js").Entry} entry */
  #child(entry) {
    const cut = entry.path.lastIndexOf("/");
    const above = cut < 0 ? "" : entry.path.slice(0, cut);
    const name = entry.path.slice(cut + 1).replace(/#\d+$/, "");
    const open = [...this.#tools.values()].filter(
      (tool) => tool.row.path === above && tool.began <= entry.at && (tool.end ?? Infinity) >= entry.at,
    );
    const free = open.filter((tool) => !this.#taken.has(tool));
    const tool = free.find((one) => one.name === name) ?? (free.length === 1 ? free[0] : null);
    if (tool) this.#taken.add(tool);
    this.#places.set(entry.path, tool?.groups ?? this.#places.get(above) ?? this.#groups);
  }

  /** @type {Set<ToolCall>} */ #taken = new Set();
}
