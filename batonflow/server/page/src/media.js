// Pictures and files in messages. Nothing is loaded from elsewhere: a picture is shown if its data are in the message.

import { attempt, button, h } from "./dom.js";
import { bytes } from "./format.js";

const DRAWN = /^data:image\/(?:png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=]+$/;
const KINDS = /^image\/(?:png|jpeg|gif|webp|avif|bmp)$/;
/** Characters of the data of a picture. */
const LARGEST = 6_000_000;

/**
 * A picture from its data; null if the data is not a picture, or too large.
 * @param {string} address @param {string} text its description
 */
export function picture(address, text) {
  if (address.length > LARGEST || !DRAWN.test(address)) return null;
  return h("img", {
    class: "picture",
    src: address,
    alt: text || "A picture without a description",
    decoding: "async",
  });
}

/** A block with a picture, a recording or a file; null if it is another block. @param {any} block */
export function media(block) {
  const kind = block?.block_type;
  if (!["image", "audio", "video", "document"].includes(kind)) return null;
  const data = block[kind === "document" ? "data" : kind];
  const type = String(block[`${kind}_mimetype`] ?? "");
  const inside = typeof data === "string" && data;
  const shown = kind === "image" && picture(addressOf(block, data, type), block.title ?? "A picture in the message");
  const size = inside
    ? bytes(Math.floor((data.length * 3) / 4))
    : data?.$large
      ? `${bytes(data.$large)}, not kept`
      : "";
  const facts = [block.title ?? kind, type, size, block.path && `file ${block.path}`, !shown && hostOf(block.url)];
  const kept = inside && !shown;
  const saved = kept && button("Save", () => void attempt(() => save(block, data)), { icon: "down", class: "quiet" });
  return h("figure", { class: "media" }, shown, h("figcaption", {}, facts.filter(Boolean).join(" · "), saved));
}

/** @param {any} block @param {any} data @param {string} type */
function addressOf(block, data, type) {
  if (typeof data === "string" && KINDS.test(type)) return `data:${type};base64,${data}`;
  return typeof block.url === "string" ? block.url : "";
}

/** @param {any} url */
function hostOf(url) {
  if (typeof url !== "string") return "";
  return url.startsWith("data:") ? "a data URL that is not shown" : `at ${url.slice(0, 200)}, not loaded`;
}

/** Saves data as a file without a type, so that no program opens it at once. @param {any} block @param {string} data */
async function save(block, data) {
  const octets = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
  const href = URL.createObjectURL(new Blob([octets], { type: "application/octet-stream" }));
  h("a", {
    href,
    download: String(block.title ?? block.block_type)
      .replace(/[^\w.-]+/g, "-")
      .slice(0, 80),
  }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}
