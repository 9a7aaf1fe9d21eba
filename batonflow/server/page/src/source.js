// Sources of runs: a server, or data in the page itself.

import { h, dialog } from "./dom.js";

/**
 * @typedef {Record<string, any>} Handler
 * @typedef {{entries: any[], next: number, more: boolean, status?: string}} TracePage
 */

const PAGE_OF_TRACE = 1000;
const TOKEN = "batonflow.token";

/** An answer of the server that is not the one hoped for. */
export class Refused extends Error {
  /** @param {number} status @param {any} detail */
  constructor(status, detail) {
    super(
      typeof detail === "string" ? detail : Array.isArray(detail) ? detail.map(complaint).join("; ") : `HTTP ${status}`,
    );
    this.status = status;
    this.detail = detail;
  }
}

/** @param {any} one */
const complaint = (one) => `${(one.loc ?? []).join(".")}: ${one.msg ?? ""}`;

/** The id of a run in a path: one or two dots alone would be another path before it is sent. @param {string} id */
const inPath = (id) => (id === "." || id === ".." ? `=${id}` : encodeURIComponent(id));

/** The server that this page comes from. */
export class LiveSource {
  embedded = false;
  #token = remembered();
  #asking = null;
  #declined = false;

  /** Runs, newest first. @param {Record<string, string>} conditions @param {string | undefined} after @param {number} limit */
  async runs(conditions, after, limit) {
    const query = new URLSearchParams({ ...conditions, order: "desc", limit: String(limit) });
    if (after) query.set("after", after);
    return this.#json(`handlers?${query}`);
  }

  async workflows() {
    return (await this.#json("workflows")).workflows;
  }

  /** @param {string} workflow */
  async startSchema(workflow) {
    return (await this.#json(`workflows/${encodeURIComponent(workflow)}/schema`)).start;
  }

  /** @param {string} workflow @param {Record<string, any>} event @param {string} [session] @returns {Promise<Handler>} */
  start(workflow, event, session) {
    return this.#json(`workflows/${encodeURIComponent(workflow)}/run-nowait`, { start_event: event, session });
  }

  /** The workers, and the runs in their queues. */
  fleet() {
    return this.#json("fleet");
  }

  /** The agents with conversations. @returns {Promise<string[]>} */
  async chats() {
    return (await this.#json("chats")).chats;
  }

  /** The conversations of an agent, the latest first. @param {string} workflow @param {number} limit */
  async sessions(workflow, limit) {
    return (await this.#json(`workflows/${encodeURIComponent(workflow)}/sessions?limit=${limit}`)).sessions;
  }

  /** @param {string} workflow @param {string} session @param {number} after the number of a turn */
  async turns(workflow, session, after) {
    const query = new URLSearchParams({ session, after: String(after) });
    return (await this.#json(`workflows/${encodeURIComponent(workflow)}/turns?${query}`)).turns;
  }

  /** Makes a conversation with the first turns of another one. @param {string} workflow @param {string} session @param {string} name @param {number} turn */
  forkSession(workflow, session, name, turn) {
    const body = { session, new_name: name, at_turn: turn };
    return this.#json(`workflows/${encodeURIComponent(workflow)}/sessions`, body);
  }

  /** @param {string} id @returns {Promise<Handler>} */
  handler(id) {
    return this.#json(`handlers/${inPath(id)}`);
  }

  /** The graph of a workflow and its drawing; null when its code is not served here. @param {string} workflow */
  async representation(workflow) {
    const served = (await this.workflows()).includes(workflow);
    return served ? this.#json(`workflows/${encodeURIComponent(workflow)}/representation`) : null;
  }

  /** @param {string} id @param {number} after @returns {Promise<TracePage>} */
  trace(id, after) {
    return this.#json(`handlers/${inPath(id)}/trace?after=${after}&limit=${PAGE_OF_TRACE}`);
  }

  /** All entries of a run, and the messages and tools of its calls, to which the entries refer. @param {string} id */
  async shared(id) {
    const [entries, parts] = [[], []];
    for (let after = 0, more = true; more; ) {
      const page = await this.#json(`handlers/${inPath(id)}/trace?after=${after}&limit=${PAGE_OF_TRACE}&parts=true`);
      entries.push(...page.entries.map((entry) => withCalls(entry, (index) => index + parts.length)));
      parts.push(...page.parts);
      [after, more] = [page.next, page.more];
    }
    return { entries, parts };
  }

  /** The entries of one commit with everything in them. @param {string} id @param {number} commit */
  async whole(id, commit) {
    return (await this.#json(`handlers/${inPath(id)}/trace?after=${commit - 1}&limit=1&full=true`)).entries;
  }

  /** The open questions of all runs. @returns {Promise<{pending: any[], unreadable: any[], more: boolean}>} */
  inbox() {
    return this.#json("pending");
  }

  /** @param {string} id */
  async pending(id) {
    return (await this.#json(`handlers/${inPath(id)}/pending`)).pending;
  }

  /** @param {string} id @param {string} request @param {Record<string, any>} response */
  answer(id, request, response) {
    return this.#json(`handlers/${inPath(id)}/pending/${encodeURIComponent(request)}`, { response });
  }

  /** @param {string} id */
  cancel(id) {
    return this.#json(`handlers/${inPath(id)}/cancel`, {});
  }

  /** @param {string} id */
  release(id) {
    return this.#json(`handlers/${inPath(id)}/release`, {});
  }

  /** @param {string} id @param {number} at @param {Record<string, any>} state @returns {Promise<Handler>} */
  fork(id, at, state) {
    return this.#json(`handlers/${inPath(id)}/fork`, {
      at,
      ...(Object.keys(state).length ? { state } : {}),
    });
  }

  /** Forks a run before a call of a model, which is made again with changes. @param {string} id @param {any} call @returns {Promise<Handler>} */
  tryCall(id, call) {
    return this.#json(`handlers/${inPath(id)}/fork`, { call });
  }

  /** The page as it was served, for an export. */
  async page() {
    return (await this.#answer(location.pathname.split("/").pop() ?? "", undefined, { accept: "text/html" })).text();
  }

  /**
   * Calls `onEvent` with each event of a run's stream, from `after` on, until the run is over or the signal comes. After a
   * lost connection it continues from the last event.
   * @param {string} id @param {number} after @param {(event: any) => void} onEvent @param {AbortSignal} signal
   */
  async follow(id, after, onEvent, signal) {
    let last = after;
    for (let pause = 250; !signal.aborted; pause = Math.min(pause * 2, 5000)) {
      try {
        const query = `sse=true&include_internal=true&deltas=true&pieces=50ms&after_sequence=${last}`;
        const answer = await this.#answer(`events/${inPath(id)}?${query}`, undefined, { signal });
        if (answer.status === 204) return;
        /** @type {Map<number, any>} */ const answers = new Map();
        for await (const event of serverSent(answer.body)) {
          pause = 250;
          if (event.id !== undefined && /^-?\d+$/.test(event.id)) last = Number(event.id);
          onEvent({ ...whole(JSON.parse(event.data), answers), seq: last });
        }
        return;
      } catch (error) {
        if (signal.aborted || (error instanceof Refused && error.status < 500)) return;
      }
      await new Promise((wake) => setTimeout(wake, pause));
    }
  }

  /** @param {string} path @param {any} [body] */
  async #json(path, body) {
    return (await this.#answer(path, body)).json();
  }

  /**
   * @param {string} path @param {any} [body] sent as JSON by POST
   * @param {{signal?: AbortSignal, accept?: string}} [options] @returns {Promise<Response>}
   */
  async #answer(path, body, { signal, accept = "application/json, text/event-stream" } = {}) {
    for (;;) {
      /** @type {Record<string, string>} */ const headers = { Accept: accept };
      const token = this.#token;
      if (token) headers.Authorization = `Bearer ${token}`;
      if (body !== undefined) headers["Content-Type"] = "application/json";
      const method = body === undefined ? "GET" : "POST";
      const sent = body === undefined ? undefined : JSON.stringify(body);
      const answer = await fetch(new URL(path, document.baseURI), {
        method,
        headers,
        body: sent,
        signal,
        redirect: "error",
      });
      if (answer.status === 401) {
        if (token === this.#token) await this.#askForToken(Boolean(token));
        if (token !== this.#token) continue;
        throw new Refused(401, "This server answers only with its token: load the page again to enter it.");
      }
      if (answer.ok) return answer;
      const problem = await answer.json().catch(() => ({}));
      throw new Refused(answer.status, problem.detail);
    }
  }

  /** One dialog, however many requests were refused. @param {boolean} wrong */
  #askForToken(wrong) {
    if (this.#declined) return Promise.resolve();
    this.#asking ??= new Promise((settled) => {
      const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, autofocus: true });
      const hint = wrong ? "That token was not accepted." : "This server asks for its token. It stays in this tab.";
      const form = h(
        "form",
        { class: "stack" },
        h("p", { text: hint }),
        h("label", { for: "token", text: "Token" }),
        field,
        h("div", { class: "actions" }, h("button", { class: "button primary", text: "Continue" })),
      );
      let given = false;
      const box = dialog("Token", form, "small");
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.#token = field.value;
        remember(field.value);
        given = true;
        box.close();
      });
      box.addEventListener("close", () => {
        this.#asking = null;
        this.#declined = !given;
        settled(undefined);
      });
    });
    return this.#asking;
  }
}

/** A sandboxed frame does not have storage. */
function remembered() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

/** @param {string} token */
function remember(token) {
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    // Then it holds until the page is left.
  }
}

/** The messages of a stream of server-sent events. @param {ReadableStream<Uint8Array>} body */
async function* serverSent(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer = (buffer + value).replace(/\r\n?/g, "\n");
    const messages = buffer.split("\n\n");
    buffer = messages.pop() ?? "";
    for (const message of messages) {
      /** @type {Record<string, string>} */ const fields = {};
      for (const line of message.split("\n")) {
        const colon = line.indexOf(":");
        if (colon < 1) continue;
        const [name, value] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
        fields[name] = name in fields ? `${fields[name]}\n${value}` : value;
      }
      if (fields.data !== undefined) yield fields;
    }
  }
}

/**
 * A piece of an answer with its origin and the text so far, as `Deltas` of the server describes; other events are
 * returned unchanged.
 * @param {any} event @param {Map<number, any>} answers the answers of this connection by the place of their first piece
 */
function whole(event, answers) {
  if (event.of == null) return event;
  const { at, text, ...piece } = event.value;
  const first = answers.get(event.of) ?? event;
  const response = (at ? (first.value.response ?? "") : "") + (text ?? piece.delta);
  const value = { ...first.value, thinking_delta: null, ...piece, response };
  delete value.at;
  delete value.text;
  const made = { ...first, value };
  answers.set(event.of, made);
  return made;
}

/** An entry with calls that refer to other parts. @param {any} entry @param {(index: number) => any} part */
function withCalls(entry, part) {
  if (!entry.calls) return entry;
  const shown = (items) => (Array.isArray(items) ? items.map((one) => (typeof one === "number" ? part(one) : one)) : items);
  const calls = entry.calls.map((call) => ({
    ...call,
    ...Object.fromEntries(["messages", "tool_specs", "answer"].filter((name) => name in call).map((name) => [name, shown(call[name])])),
  }));
  return { ...entry, calls };
}

/** A run with its data in the page, without requests. */
export class EmbeddedSource {
  embedded = true;

  /** @param {{handler: Handler, representation: any, entries: any[], parts?: any[]}} data */
  constructor(data) {
    const { parts = [] } = data;
    const entries = data.entries.map((entry) => withCalls(entry, (index) => parts[index]));
    for (const call of entries.flatMap((entry) => entry.calls ?? [])) if (Array.isArray(call.answer)) [call.answer] = call.answer;
    this.data = { ...data, entries };
  }

  async handler() {
    return this.data.handler;
  }

  async representation() {
    return this.data.representation;
  }

  /** @returns {Promise<TracePage>} */
  async trace() {
    const { entries } = this.data;
    return { entries, next: entries.at(-1)?.commit ?? 0, more: false };
  }

  async pending() {
    return [];
  }

  async whole() {
    return [];
  }
}

/** The data that was put into this page, if any. */
export function embeddedData() {
  const text = document.getElementById("run")?.textContent ?? "";
  return text.trim() ? JSON.parse(text) : null;
}
