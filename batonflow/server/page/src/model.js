// The data of a run: the entries of its trace, and derived values.

/**
 * @typedef {{number: number | null, how: string, type: string, qualified_name: string, value: any, seq?: number,
 *   last_seq?: number, ts?: number, target?: string}} TraceEvent
 * @typedef {{path: string, value?: any, deleted?: boolean}} Write
 * @typedef {{id: number, kind: string, path: string, commit: number, at: number, step?: string, item?: number,
 *   attempt?: number, began?: number, causes?: [number, number][], events?: TraceEvent[], writes?: Write[],
 *   outcome?: any, key?: string, child?: string, calls?: ModelCall[]}} Entry
 * @typedef {{model: string, vendor: string, agent?: string, purpose?: string, options?: any, tools?: string[],
 *   finish?: string, usage?: any, began: number, first?: number, took: number, request_id?: string, error?: string,
 *   messages?: any, answer?: any, tool_specs?: any}} ModelCall `messages`, `answer` and `tool_specs` may be cut
 *
 * @typedef {{from: number, to: number, wait: boolean}} Stretch
 * @typedef {{key: string, path: string, step: string, item: number, attempt: number, entries: Entry[], began: number,
 *   end: number, state: "running" | "returned" | "failed" | "waiting" | "cancelled", stretches: Stretch[],
 *   causes: [number, number][], agent: string, answered: number}} Attempt
 *
 * @typedef {{id: string, index: number, kind: "event" | "failure" | "note", entry: Entry | null,
 *   event: TraceEvent | null, type: string, how: string, path: string, step: string, agent: string, at: number,
 *   commit: number | null, seq: number | null, value: any, attempt: Attempt | null, text?: string}} Row
 */

import { instant } from "./format.js";

const OVER = new Set(["completed", "failed", "cancelled"]);

/** @param {{status?: string} | null} handler */
export const isOver = (handler) => OVER.has(handler?.status ?? "");

export class RunModel {
  /** @param {Record<string, any>} [handler] of the run; a fork begins where it branched off, and not with its parent */
  constructor(handler) {
    this.shared = handler?.forked_from?.[1] ?? 0;
    this.began = this.shared ? (instant(handler.started_at) ?? 0) : 0;
    /** @type {Entry[]} */ this.entries = [];
    /** @type {Map<number, Entry>} */ this.byId = new Map();
    /** @type {Row[]} */ this.rows = [];
    /** @type {Map<string, Row>} */ this.rowById = new Map();
    /** @type {Map<string, Attempt>} */ this.byKey = new Map();
    /** @type {Attempt[]} */ this.attempts = [];
    /** @type {Map<string, Attempt[]>} */ this.consumers = new Map();
    /** @type {{commit: number, at: number}[]} */ this.commits = [];
    /** @type {Set<string>} */ this.paths = new Set([""]);
    this.from = this.began || Infinity;
    this.to = this.began || -Infinity;
    this.lastSeq = -1;
    this.ended = false;
  }

  get lastCommit() {
    return this.commits.at(-1)?.commit ?? 0;
  }

  /** Takes in further entries, in order. @param {Entry[]} entries */
  add(entries) {
    for (const entry of entries) {
      if (this.byId.has(entry.id)) continue;
      this.entries.push(entry);
      this.byId.set(entry.id, entry);
      this.paths.add(entry.path);
      const last = this.commits.at(-1);
      if (last?.commit === entry.commit) last.at = entry.at;
      else this.commits.push({ commit: entry.commit, at: entry.at });
      if (entry.commit > this.shared) {
        this.from = Math.max(this.began, Math.min(this.from, entry.began ?? entry.at, entry.at));
        this.to = Math.max(this.to, entry.at);
      }
      if (entry.kind === "ended" && !entry.path) this.ended = true;
      const attempt = entry.step ? this.#attemptOf(entry) : null;
      this.#addRows(entry, attempt);
    }
  }

  /** Replaces an entry without its large values by the complete entry. @param {Entry} whole */
  replace(whole) {
    const known = this.byId.get(whole.id);
    if (!known) return;
    Object.assign(known, { events: whole.events, writes: whole.writes, outcome: whole.outcome, calls: whole.calls });
    for (const event of whole.events ?? []) {
      const row = this.rowById.get(rowId(known, event));
      if (row) Object.assign(row, { event, value: event.value, text: undefined });
    }
  }

  /** The commit at or before a time. @param {number} time */
  commitAt(time) {
    let [low, high] = [0, this.commits.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.commits[middle].at <= time) low = middle + 1;
      else high = middle;
    }
    return this.commits[Math.max(0, low - 1)]?.commit ?? 0;
  }

  /** The position of a commit. @param {number} commit */
  placeOf(commit) {
    let [low, high] = [0, this.commits.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.commits[middle].commit < commit) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, this.commits.length - 1);
  }

  /** When a commit was written. @param {number} commit */
  timeOf(commit) {
    return this.commits[this.placeOf(commit)]?.at ?? this.to;
  }

  /** The events that caused a row. @param {Row} row @returns {Row[]} */
  causesOf(row) {
    const causes = row.entry?.causes ?? row.attempt?.causes ?? [];
    return causes.map(([id, place]) => this.#rowOf(id, place)).filter((cause) => cause !== null);
  }

  /** The attempts that an event set off. @param {Row} row @returns {Attempt[]} */
  effectsOf(row) {
    if (!row.entry || !row.event) return [];
    return this.consumers.get(`${row.entry.id}:${row.event.number}`) ?? [];
  }

  /** The events that an attempt produced. @param {Attempt} attempt @returns {Row[]} */
  rowsOf(attempt) {
    return attempt.entries.flatMap((entry) =>
      (entry.events ?? []).map((event) => this.rowById.get(rowId(entry, event))).filter((row) => row !== undefined),
    );
  }

  /** Waits that nothing has answered. @returns {{attempt: Attempt, entry: Entry, question: TraceEvent | null}[]} */
  openWaits() {
    if (this.ended) return [];
    return this.attempts
      .filter((attempt) => attempt.state === "waiting")
      .map((attempt) => {
        const entry = attempt.entries.at(-1);
        return { attempt, entry, question: entry.events?.find((event) => event.how === "asked") ?? null };
      });
  }

  /** @param {number} id @param {number} place */
  #rowOf(id, place) {
    const entry = this.byId.get(id);
    const event = entry?.events?.find((one) => one.number === place);
    return (entry && event && this.rowById.get(rowId(entry, event))) ?? null;
  }

  /** @param {Entry} entry @returns {Attempt} */
  #attemptOf(entry) {
    const number = entry.attempt ?? 0;
    const key = `${entry.path}\n${entry.step}\n${entry.item}\n${number}`;
    let attempt = this.byKey.get(key);
    if (entry.kind !== "segment") {
      const waiting = attempt ?? this.#latest(entry);
      if (waiting && entry.kind === "answered") waiting.answered = entry.at;
      return waiting;
    }
    const own = entry.commit > this.shared;
    const began = Math.max(entry.began ?? entry.at, own ? this.began : 0);
    if (!attempt) {
      attempt = {
        key,
        path: entry.path,
        step: entry.step,
        item: entry.item,
        attempt: number,
        entries: [],
        began,
        end: entry.at,
        state: "running",
        stretches: [],
        causes: entry.causes ?? [],
        agent: "",
        answered: 0,
      };
      this.byKey.set(key, attempt);
      this.attempts.push(attempt);
      for (const [id, place] of attempt.causes) {
        const name = `${id}:${place}`;
        const there = this.consumers.get(name);
        if (there) there.push(attempt);
        else this.consumers.set(name, [attempt]);
        this.#cameBefore(id, place, began);
      }
    }
    const last = attempt.stretches.at(-1);
    // Attempts that the parent of a fork began continue when the fork begins.
    const apart = own && last && last.to < this.began;
    if (last && attempt.state !== "waiting" && !apart) last.to = Math.max(last.to, entry.at);
    else {
      const again = Math.max(began, attempt.answered, last?.to ?? 0);
      if (last) attempt.stretches.push({ from: last.to, to: again, wait: true });
      attempt.stretches.push({ from: again, to: Math.max(again, entry.at), wait: false });
    }
    attempt.entries.push(entry);
    attempt.end = Math.max(attempt.end, entry.at);
    const kind = entry.outcome?.kind;
    attempt.state = kind === "once" || kind === "intent" || !kind ? "running" : kind;
    attempt.agent ||= agentIn(entry) || this.#inherited(attempt);
    return attempt;
  }

  /**
   * Records are written some time after their events: an event existed when its receiving step began, and a step
   * had ended when its result was received.
   */
  #cameBefore(id, place, began) {
    const row = this.#rowOf(id, place);
    if (!row || row.at <= began) return;
    row.at = began;
    const last = row.attempt?.stretches.at(-1);
    if (row.how !== "returned" || !last || last.from > began || row.entry !== row.attempt.entries.at(-1)) return;
    last.to = began;
    row.attempt.end = began;
  }

  /** The attempt that an answer or the like belongs to. @param {Entry} entry */
  #latest(entry) {
    for (let index = this.attempts.length - 1; index >= 0; index--) {
      const attempt = this.attempts[index];
      if (attempt.item === entry.item && attempt.step === entry.step && attempt.path === entry.path) return attempt;
    }
    return null;
  }

  /** The agent of the event, or of the step's event, that an attempt receives. @param {Attempt} attempt */
  #inherited(attempt) {
    for (const [id, place] of attempt.causes) {
      const cause = this.#rowOf(id, place);
      const agent = cause?.value?.current_agent_name || cause?.attempt?.agent;
      if (agent) return String(agent);
    }
    return "";
  }

  /** @param {Entry} entry @param {Attempt | null} attempt */
  #addRows(entry, attempt) {
    const inOrder = [...(entry.events ?? [])].sort((one, other) => ORDER.indexOf(one.how) - ORDER.indexOf(other.how));
    for (const event of inOrder) {
      if (event.how === "asked" && isStreamedToo(entry, event)) continue;
      const how = entry.kind === "answered" ? "answered" : event.how;
      this.#addRow(entry, attempt, {
        id: rowId(entry, event),
        kind: "event",
        event,
        type: event.type,
        how,
        value: event.value,
        at: event.ts ?? entry.at,
        seq: event.seq ?? null,
      });
      if (event.last_seq !== undefined) this.lastSeq = Math.max(this.lastSeq, event.last_seq);
    }
    const { outcome } = entry;
    if (outcome?.kind === "failed") {
      const value = { message: outcome.message, then: outcome.then };
      this.#addRow(entry, attempt, {
        id: `${entry.id}:failed`,
        kind: "failure",
        type: outcome.error,
        how: "failed",
        value,
      });
    } else if (outcome?.kind === "once") {
      this.#addRow(entry, attempt, { id: `${entry.id}:once`, type: "Effect", how: "recorded", value: outcome.value });
    } else if (["edited", "restored", "dropped"].includes(entry.kind)) {
      const value = Object.fromEntries((entry.writes ?? []).map((write) => [write.path, write.value ?? null]));
      this.#addRow(entry, attempt, {
        id: `${entry.id}:${entry.kind}`,
        type: NOTES[entry.kind],
        how: entry.kind,
        value,
      });
    }
  }

  /** @param {Entry} entry @param {Attempt | null} attempt @param {Partial<Row>} fields */
  #addRow(entry, attempt, fields) {
    const agent = fields.value?.current_agent_name;
    const row = {
      index: this.rows.length,
      kind: "note",
      entry,
      event: null,
      path: entry.path,
      step: entry.step ?? "",
      agent: typeof agent === "string" ? agent : (attempt?.agent ?? ""),
      at: entry.at,
      commit: entry.commit,
      seq: null,
      attempt,
      ...fields,
    };
    this.rows.push(row);
    this.rowById.set(row.id, row);
  }
}

/** The order of an attempt's events. */
const ORDER = ["came", "streamed", "sent", "asked", "returned"];
const NOTES = { edited: "State edited", restored: "Taken up again", dropped: "Dropped" };

/** @param {Entry} entry @param {TraceEvent} event */
export const rowId = (entry, event) => `${entry.id}:${event.number ?? "asked"}`;

/** @param {Entry} entry */
function agentIn(entry) {
  for (const event of entry.events ?? []) {
    const name = event.value?.current_agent_name;
    if (typeof name === "string" && name) return name;
  }
  return "";
}

/** A question that is also on the stream is one event. @param {Entry} entry @param {TraceEvent} event */
function isStreamedToo(entry, event) {
  const value = JSON.stringify(event.value);
  return entry.events.some(
    (other) =>
      other !== event && other.seq !== undefined && other.type === event.type && JSON.stringify(other.value) === value,
  );
}

/** The place of a child in the graph: repeated runs of it share one. @param {string} path */
export const graphPath = (path) =>
  path
    .split("/")
    .map((part) => part.replace(/#\d+$/, ""))
    .join("/");
