// Messages of a conversation, as models and people exchange them.

import { button, h } from "./dom.js";
import { bytes } from "./format.js";
import { markdown } from "./markdown.js";
import { visible } from "./markdown_spans.js";
import { media } from "./media.js";
import { passagesIn, sourceList } from "./sources.js";
import { rawJson, scalar, valueTree } from "./value_tree.js";

/** The chat history in a value of the state, or null. @param {any} value @returns {any[] | null} */
export function messagesIn(value) {
  const stores = value?.chat_store?.store;
  const history =
    stores && typeof stores === "object"
      ? (stores.chat_history ?? Object.values(stores)[0])
      : (value?.messages ?? value);
  return Array.isArray(history) && history.length > 0 && history.every(isMessage) ? history : null;
}

/** @param {any} value */
const isMessage = (value) =>
  typeof value?.role === "string" && (Array.isArray(value.blocks) || typeof value.content === "string");

/**
 * @typedef {{raw?: boolean, tools?: Map<string, string>, results?: Map<string, any>, speaker?: string}} Look
 *   `raw` shows texts as they are written; `tools` has the names of tools by the ids of their calls, and `results` the
 *   outputs; `speaker` is the name of the agent.
 */

/** @param {any} message @param {Look} [look] */
export function messageCard(message, look = {}) {
  const blocks = Array.isArray(message.blocks) ? message.blocks : [{ block_type: "text", text: message.content }];
  const { tool_call_id: id, is_error: failed } = message.additional_kwargs ?? {};
  const role = ROLES.has(message.role) ? message.role : "other";
  return h(
    "article",
    { class: `message ${role}${failed ? " failed" : ""}` },
    h(
      "header",
      {},
      h("b", { text: look.speaker ?? message.role }),
      id && h("small", { text: look.tools?.get(id) ?? id }),
      failed && h("small", { class: "bad", text: "error" }),
    ),
    blocks.map((one) => block(one, message.role === "tool" ? { ...look, raw: true, data: true } : look)),
  );
}

const ROLES = new Set(["user", "assistant", "system", "tool"]);

/** @param {any} one @param {Look & {data?: boolean}} look */
function block(one, look) {
  const kind = one?.block_type ?? "text";
  if (kind === "text") return prose(one?.text, look);
  if (kind === "tool_call") return toolCall(one.tool_name, one.tool_kwargs, look.results?.get(one.tool_call_id));
  if (kind === "thinking")
    return h(
      "details",
      { class: "thinking" },
      h("summary", { text: "Thinking" }),
      prose(one.content ?? "The vendor does not show it.", look),
    );
  return media(one) ?? h("div", { class: "other-block" }, h("small", { text: kind }), valueTree(one, { open: 0 }));
}

/** Characters of a text that are shown at once. */
const LONG = 8_000;

/** A text, rendered or as it is written. A long one ends with a button for the rest. @param {any} text @param {Look & {data?: boolean}} [look] */
export function prose(text, look = {}) {
  if (typeof text !== "string") return valueTree(text, { open: 1 });
  const passages = look.data ? passagesIn(text) : [];
  if (passages.length) return h("div", { class: "call-result" }, sourceList(passages));
  const value = look.data ? structured(text) : null;
  if (value) return h("div", { class: "call-result" }, valueTree(value, { open: 2 }));
  const written = (part) => (look.raw ? h("div", { class: "say", text: visible(part) }) : markdown(part));
  if (text.length <= LONG) return written(text);
  const cut = text.lastIndexOf("\n", LONG) > LONG / 2 ? text.lastIndexOf("\n", LONG) : LONG;
  const box = h("div", { class: "long-text" }, written(text.slice(0, cut)));
  addRest(box, text, cut, written);
  return box;
}

/** Adds a button for the next part of a text: a text of megabytes in one element would stop the page. */
function addRest(box, text, from, written) {
  const next = button(
    `Show more of ${text.length.toLocaleString("en")} characters`,
    () => {
      next.remove();
      const to = from + 8 * LONG;
      box.append(written(text.slice(from, to)));
      if (to < text.length) addRest(box, text, to, written);
    },
    { class: "quiet" },
  );
  box.append(next);
}

/** The object or list that a text is as JSON, or null. @param {string} text */
function structured(text) {
  if (text.length > 200_000 || !/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A tool call, with its result. @param {string} name @param {any} args @param {any} [result] @param {string} [note] */
export function toolCall(name, args, result, note = "") {
  // A tool's output, or the message that a conversation keeps of it.
  const failed = (result?.is_error ?? result?.additional_kwargs?.is_error) === true;
  return h(
    "div",
    { class: failed ? "call failed" : "call" },
    h(
      "header",
      {},
      h("b", { text: name || "tool" }),
      note && h("small", { text: note }),
      failed && h("small", { class: "bad", text: "error" }),
    ),
    args !== undefined && valueTree(args ?? {}, { open: 1 }),
    result !== undefined && h("div", { class: "call-result" }, resultText(result)),
  );
}

/** @param {any} result */
function resultText(result) {
  if (result === null || typeof result !== "object") return scalar(result);
  if ("$large" in result)
    return h("span", {}, scalar(`${result.preview}…`), h("small", { text: bytes(result.$large) }));
  const blocks = Array.isArray(result.blocks) ? result.blocks : [];
  const texts = blocks.map((one) => one?.text).filter((text) => typeof text === "string");
  const pictures = blocks.map(media).filter(Boolean);
  if (!texts.length && !pictures.length) return rawJson(result);
  const text = texts.join("\n");
  const passages = passagesIn(text);
  return [passages.length ? sourceList(passages) : texts.length > 0 && scalar(text), ...pictures];
}
