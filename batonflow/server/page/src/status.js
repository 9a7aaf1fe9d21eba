// The status of a run or a part, as a mark with a word, because colour alone is not accessible.

import { h } from "./dom.js";

/** @param {Record<string, any>} handler @returns {string} */
export function statusOf(handler) {
  const { status = "running", phase, waiting } = handler;
  return phase ?? (status === "running" && waiting ? "waiting" : status); // files of other programs have no phase
}

/** @param {Record<string, any>} handler */
export function statusMark(handler) {
  return mark(statusOf(handler));
}

/** @param {string} status */
export function mark(status) {
  return h("span", { class: `status ${status}` }, h("i", { "aria-hidden": "true" }), h("span", { text: status }));
}
