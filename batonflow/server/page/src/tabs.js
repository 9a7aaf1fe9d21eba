// The tabs beside the graph. Hidden tabs are not rendered.

import { h, oncePerFrame } from "./dom.js";
import { CallsView, hasCalls } from "./calls_view.js";
import { MemoryView } from "./memory_view.js";
import { note, place } from "./router.js";
import { failedCalls, showErrors, troubles } from "./errors_view.js";
import { showSummary } from "./summary_view.js";
import { StateView } from "./state_view.js";

/** @typedef {import("./session.js").Session} Session */

/** @typedef {{element: HTMLElement, show: () => void, leave?: () => void}} View */
/** @typedef {{name: string, title: string, make: (session: Session) => View, count?: (session: Session) => number}} Tab */

/** @param {(session: Session, place: HTMLElement) => void} show */
const made = (show) => (session) => {
  const element = h("div", { class: "scroll", tabindex: 0 });
  return { element, show: () => show(session, element) };
};

/** @type {Tab} */
export const CallsTab = {
  name: "calls",
  title: "Calls",
  make: (session) => new CallsView(session),
  count: (session) => (hasCalls(session) ? 0 : -1),
};
/** @type {Tab} */
export const SummaryTab = { name: "summary", title: "Summary", make: made(showSummary) };
/** @type {Tab} */
export const StateTab = { name: "state", title: "State", make: (session) => new StateView(session) };
/** @type {Tab} */
export const MemoryTab = { name: "memory", title: "Memory", make: (session) => new MemoryView(session) };
/** @type {Tab} */
export const ErrorsTab = {
  name: "errors",
  title: "Errors",
  make: made(showErrors),
  count: (session) => troubles(session.model).length + failedCalls(session.model).length,
};

/** Panes that are beside the tabs if there is room, and otherwise tabs. */
const NARROW = [
  ["graph", "Graph"],
  ["timeline", "Timeline"],
];

export class Tabs {
  /** @type {(name: string) => void} */ onChange = () => {};
  chosen = "events";
  #byHand = false;

  /** @param {Session} session @param {import("./event_list.js").EventList} list @param {Tab} first @param {Tab[]} tabs */
  constructor(session, list, first, tabs) {
    this.session = session;
    this.list = list;
    /** @type {Map<string, {tab: Tab | null, view: View | null, head: any, panel: any}>} */
    this.parts = new Map();
    this.heads = h("div", {
      class: "tabs",
      role: "tablist",
      "aria-label": "Views of the run",
      on: { keydown: (event) => this.#key(event) },
    });
    this.panels = h("div", { class: "panels" });
    this.#add(first.name, first.title, first).head.hidden = true;
    this.first = first;
    this.#add("events", "Events", null).panel.append(list.element);
    for (const tab of tabs) this.#add(tab.name, tab.title, tab);
    for (const [name, title] of NARROW) this.#add(name, title, null, "narrow");
    this.element = h("section", { class: "views pane", "aria-label": "Views" }, this.heads, this.panels);
    this.choose("events");
    const refresh = oncePerFrame(() => this.#refresh());
    for (const topic of ["data", "instant", "handler"]) session.on(/** @type {any} */ (topic), refresh);
  }

  leave() {
    for (const { view } of this.parts.values()) view?.leave?.();
  }

  get names() {
    return [...this.parts]
      .filter(([, part]) => !part.head.hidden && !part.head.classList.contains("narrow"))
      .map(([name]) => name);
  }

  /** Moves the focus to the list in view, for the way back from a page above it. */
  focus() {
    /** @type {any} */ (this.parts.get(this.chosen)?.view)?.rows?.element.focus({ preventScroll: true });
  }

  /** Selects the next or previous line of the list in view; without one, of the events. @param {number} steps */
  step(steps) {
    const view = /** @type {any} */ (this.parts.get(this.chosen)?.view);
    (view?.rows ?? this.list).step(steps);
    this.focus();
  }

  /** @param {string} name @param {string} title @param {Tab | null} tab @param {string} [css] */
  #add(name, title, tab, css = "") {
    const head = h(
      "button",
      {
        type: "button",
        role: "tab",
        class: css,
        id: `tab-${name}`,
        "aria-controls": `panel-${name}`,
        tabIndex: -1,
        on: { click: () => this.choose(name, true) },
      },
      h("span", { text: title }),
      h("small", { class: "badge" }),
    );
    head.lastChild.hidden = true;
    const panel = h("div", {
      class: `panel ${css}`,
      role: "tabpanel",
      id: `panel-${name}`,
      "aria-labelledby": `tab-${name}`,
    });
    this.heads.append(head);
    this.panels.append(panel);
    const part = { tab, view: null, head, panel };
    this.parts.set(name, part);
    return part;
  }

  /** @param {string} name @param {boolean} [remembered] */
  choose(name, remembered = false) {
    const part = this.parts.get(name);
    if (!part) return;
    this.chosen = name;
    this.#byHand ||= remembered;
    for (const [other, { head, panel }] of this.parts) {
      head.setAttribute("aria-selected", String(other === name));
      head.tabIndex = other === name ? 0 : -1;
      panel.hidden = other !== name;
    }
    if (part.tab && !part.view) {
      part.view = part.tab.make(this.session);
      part.panel.append(part.view.element);
    }
    part.view?.show();
    this.onChange(name);
    if (remembered) note({ tab: name });
  }

  #refresh() {
    for (const { tab, head } of this.parts.values()) {
      const count = tab?.count?.(this.session) ?? 0;
      head.hidden = count < 0;
      head.lastChild.hidden = count <= 0;
      head.lastChild.textContent = count > 0 ? String(count) : "";
    }
    const { first, session } = this;
    if (session.loaded && !this.#byHand && !session.selected && first.count(session) >= 0) {
      this.#byHand = true;
      if (this.chosen === "events" && !place().tab) this.choose(first.name);
    }
    // Unfolded parts stay unfolded until new data arrives.
    const { model, instant, handler, tail } = this.session;
    const key = [
      this.chosen,
      model.entries.length,
      instant.commit,
      handler.status,
      this.chosen === "calls" && tail.map((row) => row.seq).join(),
    ].join();
    if (key === this.#seen) return;
    this.#seen = key;
    this.parts.get(this.chosen)?.view?.show();
  }

  #seen = "";

  #key(event) {
    const heads = [...this.parts].filter(([, { head }]) => head.offsetParent !== null);
    const at = heads.findIndex(([name]) => name === this.chosen);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: heads.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const [name, { head }] = heads[(next + heads.length) % heads.length];
    this.choose(name, true);
    head.focus();
  }
}
