// Parts of a conversation: texts, notes, handoffs and files.

import { h } from "./dom.js";
import { prose } from "./chat.js";

/** @typedef {import("./chat_view.js").Item} Item */

/** A text of an agent, while it is written or as far as it was. @param {Item} one */
export const written = (one) =>
  h(
    "div",
    { class: `message assistant${one.open ? " live" : ""}` },
    h("header", {}, h("b", { text: one.agent || "assistant" })),
    one.text && prose(one.text),
  );

/** True for a note of the framework, which has the role of the user. @param {any} message */
export const isNote = (message) => message.additional_kwargs?.observation === true;

/** The agent to which a message hands over, if it does. @param {any} message @param {Map<string, any>} results */
export function handedTo(message, results) {
  const made = (one) => one.tool_name === "handoff" && !results.get(one.tool_call_id)?.additional_kwargs?.is_error;
  return message.blocks?.findLast(made)?.tool_kwargs?.to_agent;
}

/** @param {string} written */
export const text = (written) => ({ block_type: "text", text: written });

/** The texts of a message. @param {any} message @returns {string} */
export const textOf = (message) =>
  (message?.blocks ?? [])
    .filter((one) => one?.block_type === "text")
    .map((one) => one.text)
    .join("\n");

/** A file as a part of a message. @param {File} file */
export async function block(file) {
  const address = await new Promise((read, failed) => {
    const reader = new FileReader();
    reader.onload = () => read(String(reader.result));
    reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
  const data = address.slice(address.indexOf(",") + 1);
  if (file.type.startsWith("image/")) return { block_type: "image", image: data, image_mimetype: file.type };
  return { block_type: "document", data, title: file.name, document_mimetype: file.type || "application/octet-stream" };
}
