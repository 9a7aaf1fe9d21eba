// The status of a run or a part, as a mark with a word, because colour alone is not accessible.

import { h } from "./dom.js";

/** @param {Record<string, any>} handler @returns {string} */
export function statusOf(handler) {
  return handler.status === "running" && handler.waiting ? "waiting" : (handler.status ?? "running");
}

/** @param {Record<string, any>} handler */
export function statusMark(handler) {
  return mark(statusOf(handler));
}

/** @param {string} status */
export function mark(status) {
  return h("span", { class: `status ${status}` }, h("i", { "aria-hidden": "true" }), h("span", { text: status }));
}
