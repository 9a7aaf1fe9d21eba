// The run on the screen: its data, the chosen instant, the selection, the filter, and the listeners.

import { notice } from "./dom.js";
import { instantOf } from "./instants.js";
import { fieldsOf } from "./format.js";
import { RunModel, isOver } from "./model.js";

const POLL = 2000;
const SETTLE = 120;

/**
 * @typedef {"data" | "instant" | "select" | "filter" | "handler" | "pending" | "call"} Topic
 * @typedef {import("./model.js").Row} Row
 */

export class Session {
  /** @type {Map<Topic, (() => void)[]>} */ #heard = new Map();
  #stop = new AbortController();
  #asked = 0;
  #wake = () => {};

  /** @param {any} source @param {Record<string, any>} handler @param {any} representation */
  constructor(source, handler, representation) {
    this.source = source;
    this.handler = handler;
    this.representation = representation;
    this.model = new RunModel(handler);
    /** @type {number | null} */ this.commit = null;
    /** @type {Row | null} */ this.selected = null;
    /** @type {string | null} */ this.call = null;
    this.filter = { text: "", step: "", type: "", how: "" };
    /** @type {any[]} */ this.pending = [];
    /** @type {Map<string, {path: string, step: string, began: number}>} */ this.running = new Map();
    /** @type {Row[]} */ this.tail = [];
    this.loaded = false;
    this.lost = false;
  }

  get id() {
    return this.handler.handler_id;
  }

  get live() {
    return !this.source.embedded && !isOver(this.handler);
  }

  get instant() {
    return instantOf(this.model, this.commit);
  }

  /** @param {Topic} topic @param {() => void} heard */
  on(topic, heard) {
    this.#heard.set(topic, [...(this.#heard.get(topic) ?? []), heard]);
  }

  /** @param {Topic} topic */
  notify(topic) {
    for (const heard of this.#heard.get(topic) ?? []) heard();
  }

  /** Shows the run as it was after a commit; null shows the newest. @param {number | null} commit */
  goTo(commit) {
    const { model } = this;
    const known =
      commit === null || commit >= model.lastCommit ? null : (model.commits[model.placeOf(commit)]?.commit ?? null);
    if (known === this.commit) return;
    this.commit = known;
    this.notify("instant");
  }

  /** Commits further or back. @param {number} steps */
  move(steps) {
    const { model } = this;
    const place = this.commit === null ? model.commits.length - 1 : model.placeOf(this.commit);
    this.goTo(model.commits[Math.max(0, Math.min(model.commits.length - 1, place + steps))]?.commit ?? null);
  }

  /** @param {Row | null} row */
  select(row) {
    if (this.selected === row) return;
    this.selected = row;
    this.notify("select");
  }

  /** Opens a call of a model on its page; null goes back to the run. @param {string | null} key */
  openCall(key) {
    if (this.call === key) return;
    this.call = key;
    this.notify("call");
  }

  /** @param {Partial<Session["filter"]>} changed */
  narrow(changed) {
    Object.assign(this.filter, changed);
    this.notify("filter");
  }

  /** All rows; uncommitted ones are last. @returns {Row[]} */
  rows() {
    return this.tail.length ? [...this.model.rows, ...this.tail] : this.model.rows;
  }

  /** Loads existing data, then follows until the run is over or `leave()`. */
  async open() {
    await this.#catchUp();
    this.loaded = true;
    this.notify("data");
    await this.askPending();
    if (this.live) void this.#follow();
  }

  leave() {
    this.#stop.abort();
    this.#wake();
  }

  /** Requests new data at once, after an action. */
  refresh() {
    if (this.live && this.loaded) this.#wake();
    else if (this.loaded) void this.#follow();
  }

  async askPending() {
    if (this.source.embedded || isOver(this.handler)) this.pending = [];
    else this.pending = await this.source.pending(this.id).catch(() => this.pending);
    this.notify("pending");
  }

  /** Fetches the whole of a value that was too large to come along. @param {import("./model.js").Entry} entry */
  async whole(entry) {
    for (const one of await this.source.whole(this.id, entry.commit)) this.model.replace(one);
    return this.model.byId.get(entry.id);
  }

  async #catchUp() {
    let more = true;
    let grown = false;
    while (more && !this.#stop.signal.aborted) {
      const page = await this.source.trace(this.id, this.model.lastCommit);
      more = page.more;
      this.model.add(page.entries);
      if (!page.entries.length) continue;
      grown = true;
      if (more) this.notify("data");
    }
    if (grown) this.tail = this.tail.filter((row) => (row.seq ?? 0) > this.model.lastSeq);
    return grown;
  }

  async #follow() {
    const { signal } = this.#stop;
    const streaming = this.source.follow(this.id, this.model.lastSeq, (event) => this.#streamed(event), signal);
    void streaming.then(() => this.#wake());
    while (!signal.aborted) {
      try {
        await this.#update();
        this.#reached(true);
        if (!this.live) return;
      } catch (error) {
        if (error.status === 404) {
          this.#reached(true);
          notice("The server does not have this run any more.", true);
          return;
        }
        this.#reached(false);
      }
      await this.#rest();
    }
  }

  /** @param {boolean} reached true if the server answered */
  #reached(reached) {
    if (this.lost !== reached) return;
    this.lost = !reached;
    this.notify("handler");
  }

  /** One round: new commits, the status of the run, and its questions. */
  async #update() {
    this.#asked = Date.now();
    const handler = await this.source.handler(this.id);
    const grown = await this.#catchUp();
    const changed = JSON.stringify(handler) !== JSON.stringify(this.handler);
    this.handler = handler;
    if (!this.live) {
      this.running.clear();
      this.tail = [];
    }
    if (grown || !this.live) this.notify("data");
    if (changed) this.notify("handler");
    if (changed || grown) await this.askPending();
  }

  /** Waits until something happened, but not shorter than a moment. */
  async #rest() {
    await new Promise((woken) => {
      const timer = setTimeout(woken, POLL);
      this.#wake = () => {
        clearTimeout(timer);
        setTimeout(woken, Math.max(0, SETTLE - (Date.now() - this.#asked)));
      };
    });
  }

  /** An event of the stream, before its commit. @param {any} event */
  #streamed(event) {
    this.#wake();
    const { value } = event;
    if (event.type === "StepStateChanged") {
      const key = `${event.path ?? ""}\n${value.name}\n${value.worker_id}`;
      if (value.step_state === "running")
        this.running.set(key, { path: event.path ?? "", step: value.name, began: event.ts });
      else this.running.delete(key);
      this.notify("data");
      return;
    }
    if (event.types?.includes("InternalDispatchEvent") || event.seq <= this.model.lastSeq) return;
    this.#addToTail(event, fieldsOf(value));
    this.notify("data");
  }

  /** @param {any} event @param {any} value */
  #addToTail(event, value) {
    const last = this.tail.at(-1);
    const agent = typeof value.current_agent_name === "string" ? value.current_agent_name : "";
    if (event.type === "AgentStream" && last?.type === "AgentStream" && last.agent === agent) {
      const text = (last.value.response ?? "") + (value.delta ?? "");
      last.value = { ...last.value, ...value, delta: text, response: value.response || text };
      last.seq = event.seq;
      return;
    }
    this.tail.push({
      id: `live:${event.seq}`,
      index: this.model.rows.length + this.tail.length,
      kind: "event",
      entry: null,
      event: { number: null, how: "streamed", type: event.type, qualified_name: event.qualified_name ?? "", value },
      type: event.type,
      how: "streaming",
      path: event.path ?? "",
      step: event.step ?? "",
      agent,
      at: event.ts ?? Date.now() / 1000,
      commit: null,
      seq: event.seq,
      value,
      attempt: null,
    });
  }
}
