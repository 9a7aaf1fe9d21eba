// A list of many lines of one height. Only visible lines are elements.

import { h, oncePerFrame } from "./dom.js";

export const HEIGHT = 30;
const BEYOND = 6;

/**
 * @template T
 * @typedef {{label: string, roles: [string, string], cells: string[], css?: string, write: (line: any, item: T, place: number) => void,
 *   chosen: () => number, choose: (item: T) => void, key?: (name: string) => boolean}} Options
 *   `roles` of the list and of a line; `write` fills the cells of a line; `chosen` is the place of the selection; `key` takes a
 *   key that the list does not know, and returns true if it acted.
 */

/** @template T */
export class Rows {
  /** @type {any[]} */ #pool = [];
  /** @type {T[]} */ #items = [];
  #observer;
  /** True while the last line is in view, so that new lines should come into view. */
  follows = true;

  /** @param {Options<T>} options */
  constructor(options) {
    this.options = options;
    this.space = h("div", { class: "rows-space" });
    this.element = h(
      "div",
      { class: "rows", role: options.roles[0], tabindex: 0, "aria-label": options.label },
      this.space,
    );
    this.render = oncePerFrame(() => this.renderNow());
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("click", (event) => {
      const line = event.target.closest(".row");
      if (line && !event.target.closest("a")) options.choose(line.item);
    });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.#observer = new ResizeObserver(() => this.render());
    this.#observer.observe(this.element);
  }

  get items() {
    return this.#items;
  }

  set items(items) {
    this.#items = items;
    this.space.style.height = `${items.length * HEIGHT}px`;
  }

  leave() {
    this.#observer.disconnect();
  }

  /** Chooses another line. @param {number} steps */
  step(steps) {
    const at = this.options.chosen();
    const next = Math.max(0, Math.min(this.#items.length - 1, (at < 0 && steps > 0 ? -1 : at) + steps));
    if (this.#items[next]) this.options.choose(this.#items[next]);
  }

  toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  /** Scrolls a line into view. @param {number} place */
  reveal(place) {
    const top = place * HEIGHT;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top - HEIGHT;
    else if (top + HEIGHT > scrollTop + clientHeight) this.element.scrollTop = top + 2 * HEIGHT - clientHeight;
  }

  renderNow() {
    const { scrollTop, clientHeight } = this.element;
    if (!clientHeight) return;
    const items = this.#items;
    const first = Math.max(0, Math.floor(scrollTop / HEIGHT) - BEYOND);
    const last = Math.min(items.length, Math.ceil((scrollTop + clientHeight) / HEIGHT) + BEYOND);
    const wanted = Math.max(0, last - first);
    while (this.#pool.length < wanted) this.#pool.push(this.#emptyLine());
    while (this.#pool.length > wanted + 2 * BEYOND) this.#pool.pop().remove();
    const chosen = this.options.chosen();
    // A row keeps its element while it is visible, so that scrolling writes only new rows.
    for (let place = first; place < last; place++) {
      const line = this.#pool[place % this.#pool.length];
      this.#place(line, items[place], place);
      const selection = String(place === chosen);
      if (line.getAttribute("aria-selected") !== selection) line.setAttribute("aria-selected", selection);
    }
    for (const line of this.#pool) {
      const out = line.place < first || line.place >= last || line.item !== items[line.place];
      if (line.hidden !== out) line.hidden = out;
    }
    const active = this.#pool.find((line) => !line.hidden && line.place === chosen);
    if (active) this.element.setAttribute("aria-activedescendant", active.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #emptyLine() {
    const { roles, css = "", cells } = this.options;
    const parts = cells.map((name) => h("span", { class: name }));
    const line = h("div", { class: `row ${css}`.trim(), role: roles[1], id: `row-${++lines}` }, parts);
    line.cells = parts;
    this.space.append(line);
    return line;
  }

  /** @param {any} line @param {T} item @param {number} place */
  #place(line, item, place) {
    const all = this.#items.length;
    const flat = this.options.roles[1] === "option";
    if (line.place !== place) line.style.transform = `translateY(${place * HEIGHT}px)`;
    if (flat && (line.place !== place || line.all !== all)) {
      line.setAttribute("aria-posinset", String(place + 1));
      line.setAttribute("aria-setsize", String(all));
    }
    const moved = line.item !== item || line.place !== place;
    Object.assign(line, { item, place, all });
    line.moved = moved;
    this.options.write(line, item, place);
  }

  #scrolled() {
    this.follows = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - HEIGHT;
    this.render();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.target !== this.element) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / HEIGHT) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[
      event.key
    ];
    if (steps !== undefined) this.step(steps);
    else if (!this.options.key?.(event.key)) return;
    event.preventDefault();
  }
}

let lines = 0;
