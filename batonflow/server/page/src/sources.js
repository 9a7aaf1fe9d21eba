// Passages that were found for an answer, with their numbers and their places.

import { h } from "./dom.js";
import { visible } from "./markdown_spans.js";

/** @typedef {{number: number, place: string, text: string}} Passage */

/** Characters of a passage that are shown at once. */
const SHORT = 240;
const MARK = /<passage (\d+)>\n([\s\S]*?)\n<\/passage \1>\s*/g;
const NUMBER = /\[(\d{1,5})\]/;
const LINE_OF_PLACE = /^[\w .-]{1,60}: .*$/;

/** The passages in the result of a tool, or an empty list if it is another text. @param {string} text @returns {Passage[]} */
export function passagesIn(text) {
  if (!text.startsWith("<passage ") || text.replace(MARK, "").trim()) return [];
  return [...text.matchAll(MARK)].map(([, number, inside]) => {
    const [head, ...rest] = inside.split("\n\n");
    const lines = head.split("\n");
    const hasPlace = rest.length > 0 && lines.every((line) => LINE_OF_PLACE.test(line));
    return { number: Number(number), place: hasPlace ? lines.join(" · ") : "", text: hasPlace ? rest.join("\n\n") : inside };
  });
}

/** The passages of the answer of a query engine, or an empty list. @param {any} answer @returns {Passage[]} */
export function sourcesOf(answer) {
  if (!Array.isArray(answer?.source_nodes)) return [];
  return answer.source_nodes.map((found, index) => {
    const { metadata = {}, text, text_resource: resource } = found?.node ?? {};
    const hidden = new Set(found?.node?.excluded_llm_metadata_keys ?? []);
    const known = Object.entries(metadata).filter(([name]) => !hidden.has(name) || name === "file_name");
    const place = known.map(([name, value]) => `${name}: ${value}`).join(" · ");
    return { number: index + 1, place, text: String(text ?? resource?.text ?? "") };
  });
}

/** @param {Passage[]} passages */
export function sourceList(passages) {
  return h(
    "ol",
    { class: "sources", "aria-label": "Sources" },
    passages.map(({ number, place, text }) => {
      const begin = h("div", { class: "say", text: visible(text.length > SHORT ? `${text.slice(0, SHORT)}…` : text) });
      const whole = text.length > SHORT && h("details", {}, h("summary", { text: "Whole passage" }), h("div", { class: "say", text: visible(text) }));
      return h("li", { value: number }, place && h("p", { class: "muted", text: place }), begin, whole);
    }),
  );
}

/** Makes the numbers of sources in the answers of an element into links to the sources in it. @param {HTMLElement} root */
export function linked(root) {
  const known = new Map([...root.querySelectorAll(".sources > li")].map((one) => [String(one.value), one]));
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (known.size && texts.nextNode()) found.push(texts.currentNode);
  for (const text of found) {
    const { parentElement: around } = text;
    if (!around.closest(".md") || around.closest("a, code, .sources, .user")) continue;
    const parts = text.data.split(NUMBER);
    if (parts.length > 1) text.replaceWith(...parts.map((part, at) => (at % 2 ? link(part, known.get(part)) : part)));
  }
  return root;
}

/** @param {string} number @param {HTMLElement} [source] @returns {HTMLElement | string} */
function link(number, source) {
  if (!source) return `[${number}]`;
  const show = () => {
    for (let box = source.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    source.tabIndex = -1;
    source.focus();
  };
  return h("button", { type: "button", class: "cite", text: `[${number}]`, "aria-label": `Source ${number}`, on: { click: show } });
}
