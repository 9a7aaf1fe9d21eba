// The open questions of all runs: counted in the head of the page, and answered on a view of their own.

import { button, fill, h } from "./dom.js";
import { ago, brief, fieldsOf, shortName } from "./format.js";
import { isApproval, openRequest, question } from "./pending_view.js";
import { address } from "./router.js";

const EVERY = 3000;

/** Watches the questions while the page is visible. */
export class Inbox {
  /** @type {any[]} */ pending = [];
  /** @type {{handler_id: string, detail: string}[]} */ unreadable = [];
  /** @type {Record<string, number>} */ unserved = {};
  more = false;
  /** @type {Error | null} */ trouble = null;
  /** @type {Set<() => void>} */ #heard = new Set();

  /** @param {any} source */
  constructor(source) {
    this.source = source;
    void this.refresh();
    setInterval(() => document.visibilityState === "visible" && void this.refresh(), EVERY);
  }

  /** Calls a function after each reading; returns a function that ends it. @param {() => void} heard */
  on(heard) {
    this.#heard.add(heard);
    heard();
    return () => void this.#heard.delete(heard);
  }

  async refresh() {
    try {
      Object.assign(this, await this.source.inbox(), { trouble: null });
    } catch (error) {
      this.trouble = error;
    }
    for (const heard of this.#heard) heard();
  }
}

/** The link to the inbox, with the number of questions. @param {Inbox} inbox */
export function inboxLink(inbox) {
  const count = h("small", { class: "badge" });
  const link = h("a", { class: "view-link", href: address({ view: "inbox" }), "data-view": "inbox" }, h("span", { text: "Inbox" }), count);
  inbox.on(() => {
    const { length } = inbox.pending;
    count.hidden = !length;
    count.textContent = String(length);
    link.title = length === 1 ? "1 open question" : `${length} open questions`;
  });
  return link;
}

/** @param {Inbox} inbox @param {HTMLElement} root @returns {() => void} a function that stops it */
export function inboxView(inbox, root) {
  const away = h("p", { class: "away", role: "status" });
  const cards = h("div", { class: "inbox-cards" });
  let shown = "";
  fill(
    root,
    away,
    h(
      "section",
      { class: "runs", "aria-labelledby": "inbox-title" },
      h("header", { class: "runs-head" }, h("h1", { id: "inbox-title", text: "Inbox" })),
      cards,
    ),
  );
  void inbox.refresh();
  return inbox.on(() => {
    away.hidden = !inbox.trouble;
    away.textContent = inbox.trouble ? `These questions may have changed: ${inbox.trouble.message}. Trying again…` : "";
    const now = JSON.stringify([inbox.pending, inbox.unreadable, inbox.unserved, inbox.more]);
    if (now === shown) return; // a card that is read or has the focus stays
    shown = now;
    fill(
      cards,
      inbox.pending.map((request) => card(inbox, request)),
      inbox.unreadable.map(unreadableCard),
      Object.entries(inbox.unserved).map(unservedLine),
      inbox.more && h("p", { class: "muted", text: "Older runs were not looked at." }),
      !inbox.pending.length && !Object.keys(inbox.unserved).length && h("p", { class: "empty", text: "No run asks anything." }),
    );
  });
}

/** @param {Inbox} inbox @param {any} request */
function card(inbox, request) {
  const approval = isApproval(request);
  const value = fieldsOf(request.event?.value);
  const run = { source: inbox.source, id: request.handler_id, refresh: () => void inbox.refresh() };
  const answer = button(approval ? "Review" : "Answer", () => openRequest(run, request), { class: "primary" });
  const note = approval ? brief(value.arguments ?? {}, 400) : `is answered with ${shortName(request.response_type)}`;
  return h(
    "article",
    { class: "card" },
    h(
      "header",
      {},
      h("span", { class: "pill", text: approval ? "Approval" : "Question" }),
      h("h2", { text: question(request) }),
      answer,
    ),
    h("p", { class: "inbox-note", text: note }),
    value.problem && h("p", { class: "failure-text", text: value.problem }),
    h(
      "p",
      { class: "muted" },
      h("a", { href: address({ run: request.handler_id }), text: request.handler_id }),
      ` of ${shortName(request.workflow_name)}${request.path ? `, in ${request.path}` : ""}, started `,
      h("time", { text: ago(request.started_at), title: request.started_at }),
    ),
  );
}

/** @param {[string, number]} waiting a workflow that the server does not have, and the number of its runs */
function unservedLine([workflow, runs]) {
  const link = h("a", { href: address({ workflow, status: "waiting" }), text: runs === 1 ? "1 run" : `${runs} runs` });
  const verb = runs === 1 ? "waits" : "wait";
  const rest = ` of ${shortName(workflow)} ${verb}. This server does not have the workflow: answer on another one, or with batonflow approve.`;
  return h("p", { class: "muted" }, link, rest);
}

/** @param {{handler_id: string, detail: string}} run */
function unreadableCard(run) {
  return h(
    "article",
    { class: "card" },
    h(
      "header",
      {},
      h("h2", {}, "The questions of ", h("a", { href: address({ run: run.handler_id }), text: run.handler_id }), " cannot be read"),
    ),
    h("p", { class: "failure-text", text: run.detail }),
  );
}
