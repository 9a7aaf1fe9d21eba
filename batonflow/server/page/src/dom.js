// Helpers to create elements. Text is always set as text: the page never parses markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Props
 */

/**
 * Sets the properties of an element: `class`, `text`, `on` (handlers by event), `style` and `data` (by name), properties that
 * have no attribute (`value`, `checked`, `disabled`, ...), else attributes; null and false leave them out.
 * @param {Element} element @param {Props} props
 */
function furnish(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name === "text") element.textContent = String(value);
    else if (name === "on") for (const [type, heard] of Object.entries(value)) element.addEventListener(type, heard);
    else if (name === "style") for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "tabIndex", "readOnly"]);

/**
 * An HTML element with children; texts become text nodes.
 * @param {string} tag @param {Props} [props] @param {...(Child | Child[])} children @returns {any}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  furnish(element, props);
  element.append(...shown(children));
  return element;
}

/** The same for SVG. @param {string} tag @param {Props} [props] @param {...(Child | Child[])} children @returns {any} */
export function s(tag, props = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  furnish(element, props);
  element.append(...shown(children));
  return element;
}

/** @param {any[]} children @returns {(Node | string)[]} */
function shown(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/** Replaces the content of an element. @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...shown(children));
}

const ICONS = {
  back: "M10 3 5 8l5 5",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  down: "M8 3v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10",
  fit: "M3 6V3h3M13 6V3h-3M3 10v3h3M13 10v3h-3",
  fork: "M5 3v10M5 9c6 0 6-2 6-5M9 5.5 11 3.5l2 2",
  help: "M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.6-.7 1.1v.3M8 11.8v.2",
  minus: "M3.5 8h9",
  moon: "M13 9.5A5.5 5.5 0 1 1 6.5 3 4.5 4.5 0 0 0 13 9.5z",
  pause: "M6 3.5v9M10 3.5v9",
  play: "M5 3.5v9l7.5-4.5z",
  on: "M6 3l5 5-5 5",
  plus: "M8 3.5v9M3.5 8h9",
  stop: "M4.5 4.5h7v7h-7z",
  sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
};

/** A line drawing, for buttons. @param {keyof typeof ICONS} name */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

/**
 * A button. With only an icon, the label is its accessible name.
 * @param {string} label @param {() => void} pressed
 * @param {{icon?: keyof typeof ICONS, class?: string, bare?: boolean, title?: string, disabled?: boolean}} [options]
 */
export function button(label, pressed, options = {}) {
  const props = {
    type: "button",
    class: `button ${options.class ?? ""} ${options.bare ? "bare" : ""}`.trim(),
    title: options.title ?? (options.bare ? label : null),
    "aria-label": options.bare ? label : null,
    disabled: options.disabled ?? false,
    on: { click: pressed },
  };
  return h("button", props, options.icon && icon(options.icon), !options.bare && h("span", { text: label }));
}

/**
 * A modal dialog that opens at once and is removed when it is closed (Escape, a button, `close()`).
 * @param {string} title @param {Child | Child[]} content @param {string} [css] @returns {HTMLDialogElement}
 */
export function dialog(title, content, css = "") {
  const close = button("Close", () => box.close(), { icon: "close", bare: true });
  const heading = h("h2", { text: title, id: `dialog-${++dialogs}` });
  const box = h(
    "dialog",
    { class: css, "aria-labelledby": heading.id, on: { close: () => box.remove() } },
    h("header", {}, heading, close),
    h("div", { class: "dialog-body" }, content),
  );
  box.addEventListener("pointerdown", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
  const first = box.querySelector(".dialog-body :is(input, select, textarea, button)");
  first?.focus();
  if (first instanceof HTMLTextAreaElement) first.setSelectionRange(0, 0);
  return box;
}

let dialogs = 0;

/** Shows a message at the edge of the page for a few seconds. @param {string} text @param {boolean} [bad] */
export function notice(text, bad = false) {
  const place = document.getElementById("notices");
  const note = h("div", { class: bad ? "notice bad" : "notice", text });
  place.append(note);
  setTimeout(() => note.remove(), bad ? 9000 : 4000);
}

/** Runs an action of the user, and shows its error. @param {() => Promise<any>} work */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    notice(error.message, true);
    return undefined;
  }
}

/** Calls a function at most once per frame. @param {() => void} work @returns {() => void} */
export function oncePerFrame(work) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      work();
    });
  };
}

/** Puts a text on the clipboard, or shows that this is not allowed. @param {string} text */
export async function copy(text) {
  await attempt(async () => {
    if (!navigator.clipboard) throw new Error("This page may not use the clipboard here.");
    await navigator.clipboard.writeText(text);
    notice("Copied.");
  });
}
