// Messages of a conversation, as models and people exchange them.

import { h } from "./dom.js";
import { bytes } from "./format.js";
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

/** @param {any} message */
export function messageCard(message) {
  const blocks = Array.isArray(message.blocks) ? message.blocks : [{ block_type: "text", text: message.content }];
  return h(
    "article",
    { class: `message ${ROLES.has(message.role) ? message.role : "other"}` },
    h(
      "header",
      {},
      h("b", { text: message.role }),
      message.additional_kwargs?.tool_call_id && h("small", { text: message.additional_kwargs.tool_call_id }),
    ),
    blocks.map(block),
  );
}

const ROLES = new Set(["user", "assistant", "system", "tool"]);

/** @param {any} one */
function block(one) {
  const kind = one?.block_type ?? "text";
  if (kind === "text" && typeof one?.text === "string") return h("div", { class: "say", text: one.text });
  if (kind === "tool_call") return toolCall(one.tool_name, one.tool_kwargs);
  if (kind === "thinking")
    return h(
      "details",
      { class: "thinking" },
      h("summary", { text: "Thinking" }),
      h("div", { class: "say", text: one.content ?? "" }),
    );
  return h("div", { class: "other-block" }, h("small", { text: kind }), valueTree(one, { open: 0 }));
}

/** A tool call, with its result. @param {string} name @param {any} args @param {any} [result] @param {string} [note] */
export function toolCall(name, args, result, note = "") {
  const failed = result?.is_error === true;
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
  const texts = Array.isArray(result.blocks)
    ? result.blocks.map((one) => one?.text).filter((text) => typeof text === "string")
    : [];
  return texts.length ? scalar(texts.join("\n")) : rawJson(result);
}
