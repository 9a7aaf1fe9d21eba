// One call of a model on a page of its own: the conversation, the tools, the parameters, the answer, the figures.

import { attempt, button, fill, h, icon } from "./dom.js";
import { attemptsOf, callTree, recordOf, sumOf } from "./calls.js";
import { messageCard } from "./chat.js";
import { brief, clock, compact, duration, hasLarge, moment, money, number } from "./format.js";
import { address, place } from "./router.js";
import { TryAgain } from "./try_again.js";
import { rawJson, valueTree } from "./value_tree.js";

export class CallPage {
  #raw = false;
  /** @type {TryAgain | null} */ #again = null;
  #round = 0;
  #shown = "";

  /** @param {import("./session.js").Session} session */
  constructor(session) {
    this.session = session;
    this.element = h("div", { class: "call-page", hidden: true });
  }

  get tree() {
    return callTree(this.session.model, Infinity, this.session.live);
  }

  /** Shows the call that is open; hides the page if there is not one. @param {boolean} [again] true if only the data changed */
  show(again = false) {
    const { call: key } = this.session;
    this.element.hidden = !key;
    if (again && this.#again) return; // changes are being written
    this.#again = null;
    if (!key) {
      this.#shown = "";
      this.element.replaceChildren();
      return;
    }
    const { tree } = this;
    const call = tree.byKey.get(key);
    const shown = [key, tree.calls.length, ...(call?.tools ?? []).map((tool) => tool.state)].join("/");
    if (again && this.#shown === shown) return;
    if (!call) {
      this.#shown = "";
      const text = this.session.loaded ? "The run does not have this call." : "Loading…";
      fill(this.element, h("div", { class: "call-head" }, this.#back()), h("p", { class: "empty", text }));
      return;
    }
    const first = this.#shown.split("/")[0] !== key;
    this.#shown = shown;
    void attempt(() => this.#fill(tree, call, first));
  }

  /** @param {number} steps */
  move(steps) {
    const { calls, byKey } = this.tree;
    const next = calls[calls.indexOf(byKey.get(this.session.call ?? "")) + steps];
    if (next) this.session.openCall(next.key);
  }

  /** @param {import("./calls.js").Tree} tree @param {import("./calls.js").Call} call @param {boolean} first */
  async #fill(tree, call, first) {
    const round = ++this.#round;
    const { session } = this;
    const cut = [call, call.before].filter((one) => one && !session.source.embedded && hasLarge(recordOf(one)));
    if (cut.length && first)
      fill(this.element, this.#head(tree, call, recordOf(call)), h("p", { class: "empty", text: "Loading…" }));
    await Promise.all(cut.map((one) => session.whole(one.entry)));
    if (round !== this.#round) return;
    const record = recordOf(call);
    const scrolled = first ? 0 : (this.element.querySelector(".call-body")?.scrollTop ?? 0);
    const sections = h("div", { class: "call-main" }, this.#conversation(call, record), this.#answer(call, record));
    const side = aside(session, tree, call, record);
    if (this.#again) side.prepend(this.#again.element);
    fill(
      this.element,
      this.#head(tree, call, record),
      h("div", { class: "call-body", tabindex: 0 }, sections, side),
    );
    const body = this.element.querySelector(".call-body");
    body.scrollTop = scrolled;
    if (first) body.focus({ preventScroll: true });
  }

  #back() {
    return h(
      "a",
      { class: "button", href: address({ ...place(), call: undefined }), "data-call": "" },
      icon("back"),
      h("span", { text: "Run" }),
    );
  }

  /** @param {import("./calls.js").Tree} tree @param {import("./calls.js").Call} call @param {any} record */
  #head(tree, call, record) {
    const at = tree.calls.indexOf(call);
    const raw = button(
      "As written",
      () => {
        this.#raw = !this.#raw;
        void this.#fill(tree, call, false).then(() => this.element.querySelector(".toggle").focus());
      },
      { class: "toggle", title: "Show texts as they are written, without Markdown" },
    );
    raw.setAttribute("aria-pressed", String(this.#raw));
    const again = this.#canTry(call, record) && this.#toTry(tree, call, record);
    const same = tree.calls.filter((one) => one.agent === call.agent && one.path === call.path);
    const sum = sumOf([{ ...call, tools: [] }]);
    const used = sum.used && `${compact(sum.input)} → ${compact(sum.output)} tokens`;
    const cost = sum.cost !== null && money(sum.cost);
    const purpose = call.purpose !== "turn" && call.purpose;
    const facts = [`of ${same.length}`, record.model, purpose, call.path, used, cost, duration(record.took)];
    return h(
      "header",
      { class: "call-head" },
      this.#back(),
      h("h1", { text: `${call.agent}: call ${call.number}` }),
      h("span", { class: "muted", text: facts.filter(Boolean).join(" · ") }),
      record.error &&
        h("span", { class: "status failed" }, h("i", { "aria-hidden": "true" }), h("span", { text: "failed" })),
      h("span", { class: "spring" }),
      again,
      raw,
      h(
        "div",
        { class: "group" },
        button("Previous call", () => this.move(-1), { icon: "back", bare: true, disabled: at <= 0 }),
        button("Next call", () => this.move(1), { icon: "on", bare: true, disabled: at >= tree.calls.length - 1 }),
      ),
    );
  }

  /** @param {import("./calls.js").Call} call @param {any} record */
  #canTry(call, record) {
    const kept = call.entry.calls?.[call.index];
    const known = kept?.agent && kept.purpose === "turn" && Array.isArray(record.messages);
    return known && !this.session.source.embedded && call.entry.commit > 1;
  }

  /** @param {import("./calls.js").Tree} tree @param {import("./calls.js").Call} call @param {any} record */
  #toTry(tree, call, record) {
    const pressed = () => {
      this.#again = this.#again ? null : new TryAgain(this.session, call, record);
      const first = this.#again ? ".try-again :is(input, textarea, select)" : ".call-head .again";
      void this.#fill(tree, call, false).then(() => this.element.querySelector(first).focus());
    };
    const made = button("Try again", pressed, {
      icon: "fork",
      class: "toggle again",
      title: "Change the messages, the model or the parameters, and run from here",
    });
    made.setAttribute("aria-pressed", String(Boolean(this.#again)));
    return made;
  }

  /** @param {import("./calls.js").Call} call @param {any} record */
  #conversation(call, record) {
    const { messages } = record;
    if (!Array.isArray(messages)) {
      const text = messages
        ? "The conversation is too large to be kept in this file."
        : "The record of this call has no messages.";
      return h("section", {}, h("h2", { text: "Messages" }), h("p", { class: "muted", text }));
    }
    const earlier = call.before ? recordOf(call.before).messages : null;
    const known = Array.isArray(earlier) ? counted(earlier) : null;
    const tools = namesIn(messages);
    let fresh = 0;
    const cards = messages.map((message, number) => {
      const card = messageCard(message, { raw: this.#raw, tools });
      if (known && !taken(known, message)) {
        fresh += 1;
        card.classList.add("fresh");
        card.firstElementChild.append(h("small", { class: "new", text: "new" }));
      }
      this.#again?.edit(number, message, card);
      return card;
    });
    const gone = known ? [...known.values()].reduce((sum, count) => sum + count, 0) : 0;
    const facts = [
      many(messages.length),
      known && `${fresh} new since call ${call.before.number}`,
      gone > 0 && `${gone} of it left out`,
    ];
    const [target] = cards.filter((card) => card.classList.contains("fresh"));
    const jumps = cards.length > 6 && [
      target &&
        fresh < cards.length &&
        button("Go to the first new one", () => target.scrollIntoView({ block: "start" }), { class: "quiet" }),
      button("Go to the answer", () => this.element.querySelector(".answer")?.scrollIntoView({ block: "start" }), { class: "quiet" }),
    ];
    return h(
      "section",
      { class: "conversation" },
      h(
        "header",
        { class: "sub-head" },
        h("h2", { text: "Messages" }),
        h("span", { class: "muted", text: facts.filter(Boolean).join(" · ") }),
        h("span", { class: "spring" }),
        jumps,
      ),
      cards,
      !cards.length && h("p", { class: "muted", text: "The conversation was empty." }),
    );
  }

  /** @param {import("./calls.js").Call} call @param {any} record */
  #answer(call, record) {
    const { answer } = record;
    const results = new Map(
      call.tools.filter((tool) => tool.result).map((tool) => [tool.row.value?.tool_id, tool.result.value?.tool_output]),
    );
    return h(
      "section",
      { class: "conversation answer" },
      h(
        "header",
        { class: "sub-head" },
        h("h2", { text: "Answer" }),
        h("span", { class: "muted", text: record.finish ? `ended by ${record.finish}` : "" }),
      ),
      record.error && h("p", { class: "failure-text", text: record.error }),
      answer && "role" in answer && messageCard(answer, { raw: this.#raw, results }),
      !answer && !record.error && h("p", { class: "muted", text: "The record of this call has no answer." }),
    );
  }
}

/** The figures, the parameters, the tools and the attempts of a call. */
function aside(session, tree, call, record) {
  const { usage = {} } = record;
  const tokens = (name) => (usage[name] ? number(usage[name]) : null);
  const facts = [
    ["Model", record.model],
    ["Vendor", record.vendor !== record.model && record.vendor],
    ["Purpose", call.purpose],
    ["Finish", record.finish],
    ["Tokens in", tokens("input_tokens")],
    ["of it cached", tokens("cached_tokens")],
    ["written to cache", tokens("cache_write_tokens")],
    ["Tokens out", tokens("output_tokens")],
    ["of it reasoning", tokens("reasoning_tokens")],
    ["Cost", typeof usage.cost === "number" && money(usage.cost)],
    ["Time", duration(record.took)],
    ["To the first piece", record.first !== undefined && duration(record.first)],
    ["Began", h("time", { text: clock(record.began), title: moment(record.began) })],
    ["Request", record.request_id],
    ["Step", call.entry.step],
    ["Commit", call.entry.commit],
  ].filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  const specs = Array.isArray(record.tool_specs) ? record.tool_specs : (record.tools ?? []).map((name) => ({ name }));
  const options = record.options ?? {};
  return h(
    "aside",
    { class: "call-side", "aria-label": "Facts of the call" },
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", {}, value))),
    ),
    attempts(tree, call),
    h(
      "section",
      {},
      h("h2", { text: "Parameters" }),
      Object.keys(options).length
        ? valueTree(options, { open: 1 })
        : h("p", { class: "muted", text: "The parameters of the model." }),
    ),
    h(
      "section",
      {},
      h("h2", { text: `Tools (${specs.length})` }),
      specs.length ? specs.map(toolSpec) : h("p", { class: "muted", text: "The model could call no tools." }),
    ),
    rawJson(record),
  );
}

/** @param {import("./calls.js").Tree} tree @param {import("./calls.js").Call} call */
function attempts(tree, call) {
  const all = attemptsOf(tree, call);
  if (!all.some((one) => recordOf(one).error) || all.length < 2) return null;
  const line = (one, at) => {
    const { error, took } = recordOf(one);
    const text = `Attempt ${at + 1}: ${error === undefined ? "answered" : brief(error, 120)} · ${duration(took)}`;
    return h(
      "li",
      {},
      one === call
        ? h("b", { text })
        : h("a", { href: address({ ...place(), call: one.key }), "data-call": one.key, text }),
    );
  };
  return h("section", {}, h("h2", { text: "Attempts" }), h("ol", { class: "history" }, all.map(line)));
}

/** @param {any} spec */
const toolSpec = (spec) =>
  h(
    "details",
    { class: "tool-spec" },
    h("summary", {}, h("b", { text: spec.name })),
    spec.description && h("p", { class: "say", text: spec.description }),
    spec.parameters && valueTree(spec.parameters.properties ?? spec.parameters, { open: 1 }),
    spec.parameters && rawJson(spec.parameters),
  );

/** @param {any[]} messages @returns {Map<string, number>} */
function counted(messages) {
  const found = new Map();
  for (const message of messages) found.set(JSON.stringify(message), (found.get(JSON.stringify(message)) ?? 0) + 1);
  return found;
}

/** Takes a message out of the known ones; false if it is not among them. @param {Map<string, number>} known @param {any} message */
function taken(known, message) {
  const key = JSON.stringify(message);
  const left = known.get(key) ?? 0;
  if (left) known.set(key, left - 1);
  return left > 0;
}

/** The names of tools by the ids of their calls. @param {any[]} messages @returns {Map<string, string>} */
function namesIn(messages) {
  const blocks = messages.flatMap((message) => (Array.isArray(message.blocks) ? message.blocks : []));
  return new Map(
    blocks.filter((one) => one?.block_type === "tool_call").map((one) => [one.tool_call_id, one.tool_name]),
  );
}

/** @param {number} count */
const many = (count) => `${compact(count)} ${count === 1 ? "message" : "messages"}`;
