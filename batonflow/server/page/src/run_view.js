// One run: its head, the panes, and their connections.

import { cancelDialog, exportRun, forkDialog, releaseRun } from "./actions.js";
import { CallPage } from "./call_page.js";
import { conversation } from "./chat_view.js";
import { comparison } from "./compare_view.js";
import { CallsTab, ErrorsTab, MemoryTab, StateTab, SummaryTab, Tabs } from "./tabs.js";
import { attempt, button, fill, h, oncePerFrame } from "./dom.js";
import { errorText } from "./errors_view.js";
import { EventList } from "./event_list.js";
import { ago, compact, duration, instant, money, moment, shortName, took } from "./format.js";
import { Graph } from "./graph.js";
import { Inspector } from "./inspector.js";
import { nextTheme } from "./theme.js";
import { helpDialog, onKeys } from "./keys.js";
import { isOver } from "./model.js";
import { showPending } from "./pending_view.js";
import { address, note, place, visit } from "./router.js";
import { Session } from "./session.js";
import { statusMark } from "./status.js";
import { attemptRow } from "./selection.js";
import { Timeline } from "./timeline.js";
import { sums } from "./usage.js";

/**
 * Shows a run, and returns a function that stops it.
 * @param {any} source @param {string} id @param {HTMLElement} root @returns {Promise<() => void>}
 */
export async function runView(source, id, root) {
  const handler = await source.handler(id);
  const representation = await source.representation(handler.workflow_name);
  const talks = Boolean(handler.session) && !source.embedded && (await source.chats()).includes(handler.workflow_name);
  const session = new Session(source, handler, representation);
  const fork = (commit) => void attempt(() => forkDialog(session, commit));
  const head = h("header", { class: "run-head" });
  const failure = h("div", { class: "banner failed", role: "status", hidden: true });
  const banners = h("div", { class: "banners", "aria-live": "polite" });
  const timeline = new Timeline(session);
  const graph = new Graph(session);
  const list = new EventList(session);
  const inspector = new Inspector(session, fork);
  const tabs = new Tabs(session, list, CallsTab, [ErrorsTab, SummaryTab, StateTab, MemoryTab]);
  const page = new CallPage(session);
  fill(
    root,
    h(
      "div",
      { class: "run", "data-pane": "events" },
      head,
      banners,
      timeline.element,
      graph.element,
      tabs.element,
      inspector.element,
    ),
    page.element,
  );
  tabs.onChange = (name) => {
    root.firstElementChild.dataset.pane = name;
    timeline.draw();
    graph.fit();
    list.render();
  };

  const showHead = oncePerFrame(() => {
    showFailure(session.handler, failure);
    fill(head, ...headOf(session, fork, talks), !failure.hidden && failure);
  });
  session.on("handler", showHead);
  session.on("data", showHead);
  session.on("instant", showHead);
  session.on("pending", () => showPending(session, banners));
  session.on("data", () => (source.embedded || !representation) && showPending(session, banners));
  session.on("instant", () => note({ commit: session.commit === null ? undefined : String(session.commit) }));
  session.on("select", () =>
    note({
      event: session.selected && session.selected.how !== "attempt" ? session.selected.id : undefined,
      seq: undefined,
    }),
  );
  const showCall = () => {
    root.firstElementChild.hidden = session.call !== null;
    if (session.call !== (place().call ?? null)) follow({ ...place(), call: session.call ?? undefined });
    page.show();
    if (session.call) return;
    tabs.onChange(tabs.chosen);
    tabs.focus();
  };
  session.on("call", showCall);
  session.on("data", () => session.call && page.show(true));
  const opened = (event) => {
    const link = event.target.closest?.("[data-call]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    session.openCall(link.dataset.call || null);
  };
  root.addEventListener("click", opened);
  session.openCall(place().call ?? null);
  showHead();
  graph.show();
  const deaf = onKeys(keysOf(session, list, timeline, tabs, page, fork));
  const timer = setInterval(() => session.live && showHead(), 1000);
  const moved = () => {
    if (source.embedded || place().run === id) arrive(session, tabs);
  };
  window.addEventListener("hashchange", moved);
  const stop = () => {
    window.removeEventListener("hashchange", moved);
    root.removeEventListener("click", opened);
    session.leave();
    deaf();
    clearInterval(timer);
    for (const part of [timeline, graph, list, tabs]) part.leave();
  };
  void attempt(async () => {
    await session.open();
    arrive(session, tabs);
  });
  return stop;
}

/** Goes to the target of the address. @param {Session} session @param {Tabs} tabs */
function arrive(session, tabs) {
  const wanted = place();
  session.openCall(wanted.call ?? null);
  if (wanted.tab) tabs.choose(wanted.tab);
  if (wanted.commit && /^\d+$/.test(wanted.commit)) session.goTo(Number(wanted.commit));
  const seq = /^\d+$/.test(wanted.seq ?? "") ? Number(wanted.seq) : null;
  const row = wanted.event
    ? session.model.rowById.get(wanted.event)
    : seq !== null &&
      session.model.rows.find((one) => one.seq !== null && one.seq <= seq && seq <= (one.event?.last_seq ?? one.seq));
  if (row) session.select(row);
}

/** @param {Session} session @param {(commit: number) => void} fork @param {boolean} talks true if the run is a turn of a conversation */
function headOf(session, fork, talks) {
  const { handler, model, source } = session;
  const { total } = sums(model, Infinity);
  const tokens = handler.tokens ?? (total.calls ? { input: total.input, output: total.output } : null);
  const cost = handler.cost ?? total.cost;
  const started = instant(handler.started_at) ?? (Number.isFinite(model.from) ? model.from : null);
  const facts = [
    ["Took", duration(took(handler, source.embedded && Number.isFinite(model.to) ? model.to : undefined))],
    ["Tokens", tokens ? `${compact(tokens.input)} → ${compact(tokens.output)}` : null],
    ["Cost", typeof cost === "number" ? money(cost) : null],
    [
      "Conversation",
      talks && h("a", { href: conversation(handler.workflow_name, handler.session), text: handler.session }),
    ],
    ["Commits", compact(Math.max(handler.commits ?? 0, model.lastCommit))],
    [
      "Started",
      started ? h("time", { text: source.embedded ? moment(started) : ago(started), title: moment(started) }) : null,
    ],
  ];
  const origin =
    handler.forked_from &&
    h(
      "p",
      { class: "muted origin" },
      "forked from ",
      source.embedded
        ? handler.forked_from[0]
        : h("a", {
            href: address({ run: handler.forked_from[0], commit: String(handler.forked_from[1]) }),
            text: handler.forked_from[0],
          }),
      ` after commit ${handler.forked_from[1]}`,
    );
  const served = session.representation !== null;
  const actions = source.embedded
    ? []
    : [
        handler.forked_from &&
          h("a", {
            class: "button",
            href: comparison(handler.forked_from[0], session.id),
            text: "Compare",
            title: "Compare with the run that it was forked from",
          }),
        served && !isOver(handler) && button("Cancel", () => cancelDialog(session), { icon: "stop" }),
        served && button("Fork", () => fork(session.instant.commit), { icon: "fork", title: "Fork from the chosen moment" }),
        button("Export", () => void attempt(() => exportRun(session)), {
          icon: "down",
          title: "Save as one HTML file",
        }),
      ];
  return [
    h(
      "div",
      { class: "title" },
      statusMark(handler),
      session.lost && h("span", { class: "lost", role: "status", text: "no connection, trying again" }),
      h("h1", { text: shortName(handler.workflow_name) }),
      h("code", { class: "run-id", text: handler.handler_id }),
    ),
    origin,
    h(
      "dl",
      { class: "metrics" },
      facts
        .filter(([, value]) => value)
        .map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", {}, value))),
    ),
    h("div", { class: "actions" }, actions),
    handler.held &&
      h(
        "div",
        { class: "banner failed" },
        h("span", { class: "pill", text: "Held" }),
        h("span", { text: handler.held }),
        h("span", { class: "spring" }),
        !source.embedded && button("Release", () => void attempt(() => releaseRun(session)), { title: "Let it be taken up again" }),
      ),
    !served &&
      !source.embedded &&
      h(
        "p",
        { class: "banner unserved", role: "status" },
        `This server does not have the workflow ${handler.workflow_name}, so it can only show this run.`,
      ),
  ].filter(Boolean);
}

/** Shows the error of a failed run; a long one is folded. @param {any} handler @param {HTMLElement} place */
function showFailure({ status, error, error_type: type }, place) {
  place.hidden = status !== "failed" || !error;
  if (place.hidden || place.childElementCount) return;
  fill(place, h("span", { class: "pill", text: shortName(type) || "Failed" }), errorText(error));
}

/** Goes to an address, if this page may: a frame created from a text does not have its own. @param {import("./router.js").Place} wanted */
function follow(wanted) {
  try {
    visit(wanted);
  } catch {
    // The view changes all the same.
  }
}

/**
 * @param {Session} session @param {EventList} list @param {Timeline} timeline @param {Tabs} tabs @param {CallPage} page
 * @param {(commit: number) => void} fork
 */
function keysOf(session, list, timeline, tabs, page, fork) {
  const cause = () => {
    const [first] = session.selected ? session.model.causesOf(session.selected) : [];
    if (first) session.select(first);
  };
  const effect = () => {
    const { selected, model } = session;
    if (!selected) return;
    if (selected.how === "attempt") {
      const [made] = model.rowsOf(selected.attempt);
      if (made) session.select(made);
    } else {
      const [first] = model.effectsOf(selected);
      if (first) session.select(attemptRow(model, first));
    }
  };
  const search = () => {
    tabs.choose("events");
    list.search.focus();
    list.search.select();
  };
  const escape = () => {
    if (document.activeElement === list.search) {
      session.narrow({ text: "" });
      list.list.focus();
    } else if (session.call) session.openCall(null);
    else if (session.selected) session.select(null);
    else session.narrow({ text: "", step: "", type: "", how: "" });
  };
  const numbers = Object.fromEntries(
    ["1", "2", "3", "4", "5", "6"].map((key) => [key, () => tabs.choose(tabs.names[Number(key) - 1] ?? "", true)]),
  );
  return {
    ...numbers,
    "/": search,
    j: () => (session.call ? page.move(1) : tabs.step(1)),
    k: () => (session.call ? page.move(-1) : tabs.step(-1)),
    "[": () => session.move(-1),
    "]": () => session.move(1),
    c: cause,
    e: effect,
    f: () => !session.source.embedded && fork(session.instant.commit),
    t: nextTheme,
    "?": helpDialog,
    "+": () => timeline.zoom(2),
    "-": () => timeline.zoom(0.5),
    Escape: escape,
  };
}
