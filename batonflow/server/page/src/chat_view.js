// A conversation with an agent: the turns of a session, and a box for the next message.

import { button, fill, h, icon, oncePerFrame } from "./dom.js";
import { messageCard, prose, toolCall } from "./chat.js";
import { block, handedTo, isNote, text, textOf, written } from "./chat_parts.js";
import { errorText } from "./errors_view.js";
import { ago, brief, compact, duration, fieldsOf, money } from "./format.js";
import { sketch } from "./graph.js";
import { isApproval, openRequest, question } from "./pending_view.js";
import { address, place, visit } from "./router.js";
import { linked } from "./sources.js";

const LISTED = 200;
const LOOK = 2000;
/** Pixels from its end within which a conversation counts as read to the end. */
const NEAR = 60;

/**
 * @typedef {{number: number, run_id: string, status: string, started_at: string, ended_at: string | null, user_msg: any,
 *   messages: any[], usage: any, error: string | null, first_agent: string, last_agent: string}} Turn
 * @typedef {{kind: "text" | "tool", agent?: string, text?: string, id?: string, name?: string, args?: any, result?: any,
 *   open?: boolean}} Item
 */

/**
 * Messages that were not sent, and the place of reading, by conversation, until the page is left.
 * @type {Map<string, {text: string, files: File[], read?: number}>}
 */
const drafts = new Map();

/** Texts that models were writing when their turns were stopped, by run, until the page is left. @type {Map<string, Item[]>} */
const cutOff = new Map();

/** The address of a conversation. @param {string} workflow @param {string} [session] */
export const conversation = (workflow, session) => address({ chat: workflow, session });

/** A conversation of the address. @param {any} source @returns {Promise<Chat>} */
export async function chatView(source) {
  const { chat: workflow = "", session } = place();
  const chat = new Chat(source, workflow, session ?? "");
  await chat.readAgents();
  return chat;
}

const BACK = "Try again when it is back.";
const AWAY = "The server does not answer.";
/** Milliseconds in which it answers, unless it is away. */
const PATIENCE = 8000;

/** True if a request failed because the server did not answer. @param {any} error */
const isAway = (error) => error instanceof TypeError || [502, 503, 504].includes(error.status);

/** The name of a new conversation, from its first message. @param {any} said */
function nameFor(said) {
  const words = (typeof said === "string" ? said : (said.blocks.find((one) => one.text)?.text ?? "files")).toLowerCase();
  const stem = words.normalize("NFD").replace(/[^a-z0-9]+/g, "-").slice(0, 40).replace(/^-+|-+$/g, "");
  return `${stem || "chat"}-${few()}`;
}

/** A few letters that hardly any other name ends with. */
const few = () => Math.random().toString(36).slice(2, 6).padEnd(4, "0");

class Chat {
  /** @type {Turn[]} */ turns = [];
  /** @type {{id: string, said: any, items: Item[], pending: any[]} | null} */ live = null;
  /** @type {File[]} */ files = [];
  sending = false;
  /** True while the newest message is in view. */ atEnd = true;
  /** The conversations in the list, as JSON. */ listed = "";
  /** @type {string[]} */ chats = [];
  /** An action of the reader that failed. */ failed = "";
  /** The reason why the newest turns cannot be read. */ trouble = "";
  /** True while it is not known whether the server still has the turns that are shown. */ doubted = false;
  #stop = new AbortController();
  #draw = oncePerFrame(() => this.#showLive());
  /** The numbers of the turns that are shown. @type {Set<number>} */ #shown = new Set();

  /** @param {any} source @param {string} workflow @param {string} session empty for a new one */
  constructor(source, workflow, session) {
    Object.assign(this, { source, workflow, session });
    this.head = h("header", { class: "chat-head" });
    this.#showHead();
    this.list = h("div", { class: "chat-list" });
    this.past = h("div", { class: "chat-turns" });
    this.now = h("div", { class: "chat-turns" });
    this.log = h("div", { class: "chat-log", tabindex: 0, role: "log", "aria-label": "Conversation" }, this.past, this.now);
    this.log.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.log;
      this.atEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    });
    // A picture that is loaded and a banner under the log move the end out of view.
    this.log.addEventListener("load", () => this.#keepEnd(), true);
    new ResizeObserver(() => this.#keepEnd()).observe(this.log);
    this.asks = h("div", { class: "banners", "aria-live": "polite" });
    this.note = h("p", { class: "chat-note", role: "status" });
    this.box = this.#composer();
    this.element = h(
      "section",
      { class: "chat" },
      h("aside", { class: "chat-side", "aria-label": "Conversations" }, this.head, this.list),
      h("div", { class: "chat-main" }, this.log, this.asks, this.note, this.box),
    );
  }

  async open() {
    const watch = setInterval(() => void this.#look(), LOOK);
    this.#stop.signal.addEventListener("abort", () => clearInterval(watch));
    this.text.focus();
    await this.#load();
    const read = drafts.get(conversation(this.workflow, this.session))?.read;
    if (read !== undefined) this.log.scrollTop = read;
    void this.#look();
  }

  leave() {
    this.#stop.abort();
    const read = this.atEnd ? undefined : this.log.scrollTop;
    drafts.set(conversation(this.workflow, this.session), { text: this.text.value, files: this.files, read });
  }

  // Data

  /** An answer of the server; without one undefined, and the line above the box tells why. @param {Promise<any>} request */
  async #asked(request) {
    const away = `${AWAY} This conversation goes on when it is back.`;
    const late = setTimeout(() => {
      this.trouble = away;
      this.#tell();
    }, PATIENCE);
    try {
      const answer = await request;
      this.trouble = "";
      if (this.failed.endsWith(BACK)) this.failed = "";
      return answer;
    } catch (error) {
      this.trouble = isAway(error) ? away : `This conversation cannot be read: ${error.message}`;
      this.doubted = true;
      return undefined;
    } finally {
      clearTimeout(late);
      this.#tell();
    }
  }

  /**
   * Carries out an action of the reader; the line above the box tells of an error.
   * @param {string} failed @param {() => Promise<any>} work
   */
  async #attempt(failed, work) {
    this.failed = "";
    try {
      await work();
    } catch (error) {
      const busy = error.status === 409 && "another message of this conversation is being answered. Try again when it is.";
      this.failed = `${failed}: ${isAway(error) ? `the server does not answer. ${BACK}` : busy || error.message}`;
    }
    this.#tell();
  }

  /** Reads the agents with conversations. */
  async readAgents() {
    const chats = await this.#asked(this.source.chats());
    if (!chats) return;
    if (!chats.length) throw new Error("This server does not have conversations: create it with accept_sessions=True.");
    if (!chats.includes(this.workflow)) throw new Error(`This server does not have an agent ${this.workflow}.`);
    this.chats = chats;
    this.#showHead();
  }

  /** Reads the turns that are new or were under way. */
  async #load() {
    if (this.session) {
      const over = this.doubted ? [] : this.turns.filter((turn) => turn.status !== "running");
      const read = await this.#asked(this.source.turns(this.workflow, this.session, over.at(-1)?.number ?? 0));
      if (!read) return;
      if (this.turns.some((turn, at) => this.doubted && turn.started_at !== read[at]?.started_at)) {
        this.#shown.clear();
        fill(this.past);
      }
      this.turns = [...over, ...read];
      this.doubted = false;
    }
    this.loaded = true;
    this.#show();
  }

  /** Reads the questions of the turn under way, or else the turns that were sent from elsewhere. */
  async #look() {
    if (document.hidden || this.looking) return;
    this.looking = true;
    try {
      if (this.live) await this.#readPending(this.live);
      else if ((await this.#listSessions()) || this.doubted) await this.#load();
      if (!this.chats.length && !this.trouble) await this.readAgents();
    } finally {
      this.looking = false;
    }
  }

  /** Shows the conversations; true if any has changed. */
  async #listSessions() {
    const sessions = await this.#asked(this.source.sessions(this.workflow, LISTED));
    const listed = JSON.stringify(sessions);
    if (!sessions || listed === this.listed) return false;
    this.listed = listed;
    const line = (one) =>
      h(
        "a",
        {
          href: conversation(this.workflow, one.name),
          class: "chat-link",
          "aria-current": one.name === this.session ? "true" : null,
        },
        h("span", { text: one.name }),
        h("small", { text: one.running ? "at work" : ago(one.updated_at), title: one.updated_at }),
      );
    fill(this.list, sessions.length ? sessions.map(line) : h("p", { class: "muted", text: "No conversations yet." }));
    return true;
  }

  /** Starts the next turn. @param {any} said the message @param {string} [session] */
  async #send(said, session = this.session || nameFor(said)) {
    this.atEnd = true;
    const run = await this.source.start(this.workflow, { user_msg: said }, session);
    if (session !== this.session) visit({ chat: this.workflow, session });
    else void this.#follow(run.handler_id, typeof said === "string" ? { role: "user", blocks: [text(said)] } : said);
  }

  /** Shows a turn while it is under way. @param {string} id of its run @param {any} said */
  async #follow(id, said) {
    if (this.live?.id === id) return;
    const live = (this.live = { id, said, items: [], pending: [] });
    this.#show();
    const { signal } = this.#stop;
    void this.#listSessions();
    await this.source.follow(id, -1, (event) => this.#heard(live, event), signal);
    cutOff.set(
      id,
      live.items.filter((one) => one.open && one.text),
    );
    let turn;
    for (let pause = 50; !signal.aborted; pause = Math.min(2 * pause, 2000)) {
      await this.#load();
      turn = this.turns.find((one) => one.run_id === id);
      if (!this.trouble && turn?.status !== "running") break;
      await new Promise((wake) => setTimeout(wake, pause));
    }
    this.live = null;
    if (signal.aborted) return;
    this.failed = "";
    if (!turn) {
      this.failed = "The server does not have this turn any more. Its message is in the box again.";
      this.text.value = [textOf(said), this.text.value].filter(Boolean).join("\n\n");
      this.doubted = true;
    }
    this.#tell();
    this.#show();
    void this.#listSessions();
  }

  /** @param {NonNullable<Chat["live"]>} live */
  async #readPending(live) {
    const pending = await this.#asked(this.source.pending(live.id));
    if (!pending || JSON.stringify(pending) === JSON.stringify(live.pending)) return;
    live.pending = pending;
    if (this.live === live) fill(this.asks, pending.map((request) => this.#ask(live, request)));
    this.#draw();
  }

  /** @param {NonNullable<Chat["live"]>} live @param {any} event */
  #heard(live, event) {
    const { value, type } = event;
    const { items } = live;
    const agent = value.current_agent_name;
    const open = items.find((one) => one.open && one.agent === agent);
    if (type === "AgentStream") {
      if (open) open.text = value.response ?? "";
      else if (value.response) items.push({ kind: "text", agent, text: value.response, open: true });
    } else if (type === "AgentOutput") {
      const written = textOf(value.response);
      if (open) open.open = false;
      else if (written || agent !== items.findLast((one) => one.agent)?.agent) items.push({ kind: "text", agent, text: written });
    } else if (type === "ToolCall") {
      if (!items.some((one) => one.id === value.tool_id))
        items.push({ kind: "tool", id: value.tool_id, name: value.tool_name, args: value.tool_kwargs });
    } else if (type === "ToolCallResult") {
      const tool = items.find((one) => one.id === value.tool_id);
      if (tool) Object.assign(tool, { result: value.tool_output, args: value.tool_kwargs ?? tool.args });
    } else if (event.types?.includes("InputRequiredEvent")) void this.#readPending(live);
    this.#draw();
  }

  // Drawing

  /** Tells in one line that something does not go on, and the remedy. */
  #tell() {
    const told = JSON.stringify([this.failed, this.trouble]);
    if (told === this.told) return;
    this.told = told;
    this.note.textContent = this.failed || this.trouble;
    this.#draw();
  }

  #showHead() {
    const select = h(
      "select",
      { "aria-label": "Agent", on: { change: () => visit({ chat: select.value }) } },
      this.chats.map((name) => h("option", { value: name, text: name, selected: name === this.workflow })),
    );
    const fresh = h(
      "a",
      { class: "button", href: conversation(this.workflow) },
      icon("plus"),
      h("span", { text: "New" }),
    );
    const name = h("h1", { text: this.workflow });
    fill(this.head, this.chats.length > 1 ? select : name, h("span", { class: "spring" }), fresh);
  }

  /** Shows the turns that are over, and follows one that is not. */
  #show() {
    const last = this.turns.at(-1);
    if (last?.status === "running" && !this.live) void this.#follow(last.run_id, last.user_msg);
    const { live } = this;
    const over = this.turns.filter((turn) => turn.run_id !== live?.id && turn.status !== "running");
    over.forEach((turn, at) => {
      if (this.#shown.has(turn.number)) return;
      this.#shown.add(turn.number);
      this.past.append(linked(this.#turn(turn, over[at - 1])));
    });
    this.stop.hidden = !live;
    this.submit.disabled = Boolean(live);
    if (!live) fill(this.asks);
    this.#showLive();
  }

  #showLive() {
    const { live } = this;
    if (live) fill(this.now, linked(this.#live(live)));
    else if (this.loaded) fill(this.now, !this.past.childElementCount && (this.welcome ??= this.#welcome()));
    this.#keepEnd();
  }

  #keepEnd() {
    if (this.atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  /** The drawing of the agent, and the way to begin. */
  #welcome() {
    return h(
      "div",
      { class: "chat-welcome" },
      h("h2", { text: `A conversation with ${this.workflow}` }),
      h("p", {
        class: "muted",
        text: "Write a message below. Each turn is a run: it survives a restart of the server, and its calls can be read, changed and made again.",
      }),
      sketch({ representation: (name) => this.#asked(this.source.representation(name)) }, this.workflow),
    );
  }

  /** @param {Turn} turn @param {Turn} [before] */
  #turn(turn, before) {
    const results = new Map(
      turn.messages.filter((one) => one.role === "tool").map((one) => [one.additional_kwargs?.tool_call_id, one]),
    );
    const shown = turn.messages.filter((one) => one.role !== "tool");
    const said = shown.length ? shown : [turn.user_msg].filter(Boolean);
    const own = said.find((one) => one.role === "user" && !isNote(one));
    const answer = turn.status === "completed" && said.findLast((one) => one.role === "assistant");
    let agent = turn.first_agent;
    const cards = said.map((message) => {
      if (isNote(message))
        return h("details", { class: "muted" }, h("summary", { text: "Note to the model" }), prose(textOf(message), { raw: true }));
      if (message === answer) agent = turn.last_agent;
      const card = messageCard(message, { results, speaker: message.role === "assistant" ? agent : undefined });
      agent = handedTo(message, results) ?? agent;
      if (message === own) this.#offerEdit(card, message, before);
      return card;
    });
    const { usage } = turn;
    const took = turn.ended_at ? (Date.parse(turn.ended_at) - Date.parse(turn.started_at)) / 1000 : undefined;
    const facts = [
      usage && `${compact(usage.input_tokens ?? 0)} → ${compact(usage.output_tokens ?? 0)} tokens`,
      typeof usage?.cost === "number" && money(usage.cost),
      took !== undefined && duration(took),
    ];
    return h(
      "article",
      { class: `turn ${turn.status}` },
      cards,
      turn.status !== "completed" && cutOff.get(turn.run_id)?.map(written),
      turn.status === "failed" && h("div", { class: "failure-text" }, errorText(turn.error || "This turn was ended by an error.")),
      turn.status === "cancelled" && h("p", { class: "muted", text: `Stopped. ${turn.error?.split("The run was cancelled: ")[1] ?? ""}` }),
      h(
        "footer",
        { class: "turn-foot muted" },
        turn.run_id && h("a", { href: address({ run: turn.run_id }), text: "Calls" }),
        h("span", { text: facts.filter(Boolean).join(" · "), title: "The time includes waits for people." }),
      ),
    );
  }

  /** @param {NonNullable<Chat["live"]>} live */
  #live(live) {
    const asks = live.pending.filter(isApproval).map((request) => fieldsOf(request.event?.value));
    const isAsked = (one) => asks.some((ask) => (ask.tool_id ? ask.tool_id === one.id : ask.tool_name === one.name));
    const state = (one) => (one.result !== undefined ? "" : isAsked(one) ? "waits for approval" : "at work");
    const item = (one) =>
      one.kind === "tool"
        ? toolCall(one.name ?? "", one.args, one.result, state(one))
        : written(one);
    const quiet = !live.items.some((one) => one.open) && !live.pending.length && !this.trouble;
    return h(
      "article",
      { class: "turn running", "aria-busy": "true" },
      live.said && messageCard(live.said),
      live.items.map(item),
      quiet && h("p", { class: "muted working", text: "At work…" }),
      h("footer", { class: "turn-foot muted" }, h("a", { href: address({ run: live.id }), text: "Follow the run" })),
    );
  }

  /** @param {NonNullable<Chat["live"]>} live @param {any} request */
  #ask(live, request) {
    const answer = (...given) =>
      this.source.answer(...given).catch((error) => {
        throw isAway(error) ? new Error("The answer was not sent: the server does not answer. Try again when it is back.") : error;
      });
    const asker = { source: { answer }, id: live.id, refresh: () => void this.#readPending(live) };
    const { arguments: given, problem } = isApproval(request) ? fieldsOf(request.event?.value) : {};
    return h(
      "div",
      { class: "banner waiting", role: "status" },
      h("span", { class: "pill", text: isApproval(request) ? "Approval" : "Question" }),
      h("b", { text: question(request) }),
      h("span", { class: "muted banner-note", text: brief(given ?? {}, 140) }),
      problem && h("span", { class: "problem banner-note", text: problem, title: problem }),
      h("span", { class: "spring" }),
      button(isApproval(request) ? "Review" : "Answer", () => openRequest(asker, request), { class: "primary" }),
    );
  }

  /** A message of the user is edited and sent again in a branch. */
  #offerEdit(card, message, before) {
    const blocks = Array.isArray(message.blocks) ? message.blocks : [];
    const written = textOf(message);
    const edit = button(
      "Edit",
      () => {
        const area = h("textarea", { "aria-label": "Message", rows: Math.min(12, 2 + written.split("\n").length), value: written });
        const send = h("button", { class: "button primary", text: "Send in a branch" });
        const form = h(
          "form",
          { class: "stack" },
          area,
          h(
            "div",
            { class: "actions" },
            button("Keep", () => card.replaceChildren(...kept)),
            send,
          ),
        );
        form.addEventListener("submit", (event) => {
          event.preventDefault();
          const others = blocks.filter((one) => one?.block_type !== "text");
          const said = others.length ? { role: "user", blocks: [text(area.value), ...others] } : area.value;
          if (!area.value.trim() && !others.length) return;
          send.disabled = true;
          void this.#attempt("The branch was not made", () => this.#branch(said, before)).finally(() => (send.disabled = false));
        });
        const kept = [...card.childNodes];
        card.replaceChildren(h("header", {}, h("b", { text: message.role })), form);
        area.focus();
      },
      { class: "quiet" },
    );
    card.firstElementChild.append(h("span", { class: "spring" }), edit);
  }

  /** @param {any} said @param {Turn} [before] the last turn of both */
  async #branch(said, before) {
    const name = `${this.session.replace(/-branch-[a-z0-9]{4}$/, "")}-branch-${few()}`;
    if (before) await this.source.forkSession(this.workflow, this.session, name, before.number);
    await this.#send(said, name);
  }

  // The box for the next message

  #composer() {
    const draft = drafts.get(conversation(this.workflow, this.session));
    this.files = draft?.files ?? [];
    this.text = h("textarea", {
      id: "chat-text",
      rows: 2,
      value: draft?.text ?? "",
      "aria-label": "Message",
      placeholder: "Write a message",
      on: {
        keydown: (event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          form.requestSubmit();
        },
      },
    });
    const chips = h("div", { class: "chips" });
    const showFiles = () =>
      fill(
        chips,
        this.files.map((file) =>
          button(
            `Remove ${file.name}`,
            () => {
              this.files = this.files.filter((one) => one !== file);
              showFiles();
            },
            { class: "chip" },
          ),
        ),
      );
    showFiles();
    const picker = h("input", {
      type: "file",
      multiple: true,
      hidden: true,
      "aria-label": "Files",
      on: {
        change: () => {
          this.files = [...this.files, ...picker.files];
          picker.value = "";
          showFiles();
        },
      },
    });
    const stop = () => void this.#attempt("The turn was not stopped", () => this.source.cancel(this.live?.id));
    this.stop = button("Stop", stop, { icon: "stop", class: "danger" });
    this.submit = h("button", { class: "button primary", text: "Send" });
    const form = h(
      "form",
      { class: "composer" },
      chips,
      this.text,
      h(
        "div",
        { class: "actions" },
        picker,
        button("Attach files", () => picker.click(), { icon: "plus", bare: true }),
        h("span", { class: "spring" }),
        this.stop,
        this.submit,
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const written = this.text.value.trim();
      if ((!written && !this.files.length) || this.sending) return;
      if (this.live) {
        if (!this.trouble) this.failed = "The agent is at work. Send this message when it has answered, or stop it.";
        this.#tell();
        return;
      }
      this.sending = true;
      void this.#attempt("Your message was not sent, and stays in the box", async () => {
        const blocks = await Promise.all(this.files.map(block));
        await this.#send(blocks.length ? { role: "user", blocks: [...(written ? [text(written)] : []), ...blocks] } : written);
        if (this.text.value.trim() === written) this.text.value = "";
        this.files = [];
        showFiles();
        if (this.#stop.signal.aborted) this.leave();
      }).finally(() => (this.sending = false));
    });
    return form;
  }
}
