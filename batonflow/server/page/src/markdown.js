// Markdown as elements. Each element is created by its name: no text becomes markup, and every pass is linear.

import { h } from "./dom.js";
import { spans } from "./markdown_spans.js";

const DEEP = 8;
const COLUMNS = 24;

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,8})([-*+]|\d{1,9}[.)])[ \t]+(?=\S)/;
const DIVIDER = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$/;

/** A text with its headings, lists, tables, quotes, code and links. @param {string} text @returns {HTMLElement} */
export function markdown(text) {
  return h("div", { class: "md" }, blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0));
}

/** @param {string[]} lines @param {number} depth @returns {HTMLElement[]} */
function blocks(lines, depth) {
  const made = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) at += 1;
    else {
      const [element, next] = block(lines, at, depth);
      made.push(element);
      at = next;
    }
  }
  return made;
}

/**
 * The block at a line, and the place of the line after it.
 * @param {string[]} lines @param {number} at @param {number} depth @returns {[HTMLElement, number]}
 */
function block(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence[1], fence[2]);
  const heading = HEADING.exec(line);
  if (heading) return [title(heading[1].length, line.slice(heading[0].length)), at + 1];
  if (RULE.test(line)) return [h("hr"), at + 1];
  if (depth < DEEP) {
    if (QUOTE.test(line)) return quote(lines, at, depth);
    if (ITEM.test(line)) return list(lines, at, depth);
  }
  const below = (lines[at + 1] ?? "").trim();
  if (line.includes("|") && below.includes("|") && DIVIDER.test(below)) return table(lines, at);
  return paragraph(lines, at, depth);
}

/** A heading, two levels below the headings of the page. @param {number} level @param {string} text */
const title = (level, text) => h(`h${Math.min(6, level + 2)}`, {}, spans(text.trim()));

/** @param {string[]} lines @param {number} at @param {string} fence @param {string} language @returns {[HTMLElement, number]} */
function code(lines, at, fence, language) {
  const close = (line) => line.trimStart().startsWith(fence) && !line.trim().replaceAll(fence[0], "");
  let end = at + 1;
  while (end < lines.length && !close(lines[end])) end += 1;
  const body = h("pre", { class: "code", tabindex: 0 }, h("code", { text: lines.slice(at + 1, end).join("\n") }));
  return [language ? h("figure", {}, h("figcaption", { text: language }), body) : body, end + 1];
}

/** @returns {[HTMLElement, number]} */
function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return [h("blockquote", {}, blocks(inside, depth + 1)), end];
}

/** @returns {[HTMLElement, number]} */
function list(lines, at, depth) {
  const [, , mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = at;
  for (let item; end < lines.length && (item = ITEM.exec(lines[end])) && /\d/.test(item[2]) === ordered;) {
    const [width, left] = [item[0].length, item[1].length];
    const inside = [lines[end].slice(width)];
    const goesOn = (line) => belongs(line ?? "", left);
    for (end += 1; goesOn(lines[end]) || (lines[end]?.trim() === "" && goesOn(lines[end + 1])); end += 1)
      inside.push(dedented(lines[end], width));
    items.push(h("li", {}, blocks(inside, depth + 1)));
    if (!(lines[end] ?? "x").trim() && ITEM.test(lines[end + 1] ?? "")) end += 1;
  }
  return [h(ordered ? "ol" : "ul", ordered ? { start: Number.parseInt(mark, 10) } : {}, items), end];
}

/** Returns true if a line is inside an item with a mark so far from the left. @param {string} line @param {number} left */
const belongs = (line, left) => Boolean(line.trim()) && line.length - line.trimStart().length > left + 1;

/** @param {string} line @param {number} width */
const dedented = (line, width) => line.slice(Math.min(width, line.length - line.trimStart().length));

/** @returns {[HTMLElement, number]} */
function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const row = (line, tag) =>
    h(
      "tr",
      {},
      cells(line).map((cell) => h(tag, {}, spans(cell))),
    );
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  const made = h("table", {}, h("thead", {}, row(lines[at], "th")), h("tbody", {}, body));
  return [h("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Table" }, made), end];
}

/** @param {string} line */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner
    .split(/(?<!\\)\|/)
    .slice(0, COLUMNS)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** @returns {[HTMLElement, number]} */
function paragraph(lines, at, depth) {
  let end = at + 1;
  const begins = (line) =>
    FENCE.test(line) || HEADING.test(line) || (depth < DEEP && (QUOTE.test(line) || ITEM.test(line)));
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end += 1;
  return [h("p", {}, spans(lines.slice(at, end).join("\n").trim())), end];
}
