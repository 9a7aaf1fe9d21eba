// Emphasis, code and links inside a block of Markdown.

import { h } from "./dom.js";
import { picture } from "./media.js";

/**
 * @typedef {Node | string} Part
 * @typedef {{mark: string, size: number, parts: Part[]}} Open an open `*`, `_`, `~` or `[`, and the parts after it
 */

const DEEP = 24;
const SAFE = /^(?:https?:\/\/|mailto:)[^\s\u0000-\u0020]+$/i;
const BARE = /https?:\/\/[^\s<>"'`|\\]+/y;
const TARGET =
  /\(\s{0,3}<?((?:[^\s()<>]|\([^\s()<>]{0,400}\)){0,4000})>?(?:\s{1,3}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'))?\s{0,3}\)/y;
const PLAIN = /[^\\`*_~![\]<h]+/y;
const WORD = /[\p{L}\p{N}]/u;
const TAGS = { "*1": "em", "*2": "strong", _1: "em", _2: "strong", "~2": "del" };

/** The parts of a text. @param {string} text @returns {Part[]} */
export function spans(text) {
  return new Spans(text).parts();
}

/** Marks that would turn the text around them, made visible. @param {string} text */
export const visible = (text) =>
  text.replace(/[\u202A-\u202E\u2066-\u2069]/g, (mark) => `[U+${mark.charCodeAt(0).toString(16).toUpperCase()}]`);

/** A link to another place, or its text alone if the address is not one of the web. @param {string} address @param {Part[]} inside */
export function outward(address, inside) {
  if (!SAFE.test(address)) return h("span", { title: visible(address.slice(0, 300)) }, inside);
  return h("a", { href: address, rel: "noopener noreferrer", target: "_blank", title: address.slice(0, 300) }, inside);
}

class Spans {
  /** @type {Open[]} */ #open = [{ mark: "", size: 0, parts: [] }];
  /** @type {Map<number, number[]> | null} */ #ticks = null;

  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** @returns {Part[]} */
  parts() {
    while (this.at < this.text.length) this.#next();
    this.#flatten(0);
    return this.#open[0].parts;
  }

  #next() {
    const { text, at } = this;
    PLAIN.lastIndex = at;
    const plain = PLAIN.exec(text);
    if (plain) return this.#take(plain[0]);
    const sign = text[at];
    if (sign === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      this.#add(text[at + 1]);
      this.at += 2;
    } else if (sign === "`") this.#code();
    else if (sign === "*" || sign === "_" || sign === "~") this.#mark(sign);
    else if (sign === "[" || (sign === "!" && text[at + 1] === "[")) this.#bracket(sign);
    else if (sign === "]") this.#closeBracket();
    else if (sign === "h" || sign === "<") this.#address(sign);
    else this.#take(sign);
  }

  /** @param {string} piece */
  #take(piece) {
    this.#add(visible(piece));
    this.at += piece.length;
  }

  /** @param {Part} part */
  #add(part) {
    const { parts } = this.#open.at(-1);
    if (typeof part === "string" && typeof parts.at(-1) === "string") parts[parts.length - 1] += part;
    else parts.push(part);
  }

  /** Makes open marks behind a place into text. @param {number} place */
  #flatten(place) {
    while (this.#open.length > place + 1) {
      const { mark, size, parts } = this.#open.pop();
      this.#add(mark.repeat(size));
      for (const part of parts) this.#add(part);
    }
  }

  #code() {
    const { text, at } = this;
    const size = runOf(text, at);
    this.#ticks ??= ticksIn(text);
    const places = this.#ticks.get(size) ?? [];
    while (places.at(-1) <= at) places.pop();
    const end = places.at(-1);
    if (end === undefined) return this.#take("`".repeat(size));
    const inside = text.slice(at + size, end);
    this.#add(
      h("code", { text: visible(inside.startsWith(" ") && inside.endsWith(" ") ? inside.slice(1, -1) : inside) }),
    );
    this.at = end + size;
  }

  /** @param {string} sign */
  #mark(sign) {
    const { text, at } = this;
    const size = runOf(text, at);
    const [before, after] = [text[at - 1] ?? " ", text[at + size] ?? " "];
    const word = sign === "_";
    const opens = /\S/.test(after) && !(word && WORD.test(before));
    const closes = /\S/.test(before) && !(word && WORD.test(after));
    this.at += size;
    let left = size;
    while (closes && left > 0) {
      const found = this.#open.findLastIndex((one) => one.mark === sign && one.size <= left);
      if (found < 1) break;
      this.#flatten(found);
      const { size: used, parts } = this.#open.pop();
      this.#add(h(TAGS[sign + used], {}, parts));
      left -= used;
    }
    if (!left) return;
    const sizes = left === 3 && sign !== "~" ? [2, 1] : [left];
    if (opens && sizes.every((one) => TAGS[sign + one]) && this.#open.length < DEEP)
      for (const one of sizes) this.#open.push({ mark: sign, size: one, parts: [] });
    else this.#add(sign.repeat(left));
  }

  /** @param {string} sign */
  #bracket(sign) {
    if (this.#open.length < DEEP) {
      const mark = sign === "!" ? "![" : "[";
      this.#open.push({ mark, size: 1, parts: [] });
      this.at += mark.length;
    } else this.#take(sign);
  }

  #closeBracket() {
    const found = this.#open.findLastIndex((one) => one.mark.endsWith("["));
    TARGET.lastIndex = this.at + 1;
    const target = found > 0 && this.text[this.at + 1] === "(" ? TARGET.exec(this.text) : null;
    if (found < 1 || !target) {
      if (found > 0) this.#flatten(found - 1);
      return this.#take("]");
    }
    this.#flatten(found);
    const { mark, parts } = this.#open.pop();
    const alone = parts.map((part) => (typeof part === "string" ? part : part.textContent)).join("");
    if (mark === "![")
      this.#add(picture(target[1], alone) ?? outward(target[1], [`Picture: ${alone || target[1].slice(0, 80)}`]));
    else this.#add(outward(target[1], parts));
    this.at = TARGET.lastIndex;
  }

  /** @param {string} sign */
  #address(sign) {
    const start = sign === "<" ? this.at + 1 : this.at;
    BARE.lastIndex = start;
    const inside = WORD.test(this.text[this.at - 1] ?? "") || this.#open.some((one) => one.mark.endsWith("["));
    const found = inside ? null : BARE.exec(this.text);
    if (!found) return this.#take(sign);
    const closed = sign === "<" && this.text[start + found[0].length] === ">";
    if (sign === "<" && !closed) return this.#take(sign);
    const address = closed ? found[0] : found[0].replace(/[.,:;!?*_~)\]]{1,9}$/, "");
    this.#add(outward(address, [visible(address)]));
    this.at = start + address.length + (closed ? 1 : 0);
  }
}

/** The length of a run of one character. @param {string} text @param {number} at */
function runOf(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

/** The places of runs of backticks by their length, the last one first. @param {string} text */
function ticksIn(text) {
  /** @type {Map<number, number[]>} */ const found = new Map();
  for (const run of [...text.matchAll(/`+/g)].reverse()) {
    const size = run[0].length;
    if (found.has(size)) found.get(size).push(run.index);
    else found.set(size, [run.index]);
  }
  return found;
}
