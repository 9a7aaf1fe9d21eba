// A call of a model once more, with changes in forms: a fork of the run begins with it.

import { attempt, button, h } from "./dom.js";
import { comparison } from "./compare_view.js";
import { address } from "./router.js";
import { schemaForm } from "./schema_form.js";

const ROWS = 24;
const MODEL = "Model";
const FURTHER = "Further parameters";
const ASK = "Ask before tools run";

export class TryAgain {
  /** Other texts by the number of the message; null leaves it out. @type {Map<number, string | null>} */
  #changed = new Map();

  /** @param {import("./session.js").Session} session @param {import("./calls.js").Call} call @param {any} record */
  constructor(session, call, record) {
    Object.assign(this, { session, call, record });
    this.element = this.#form();
  }

  /** Adds the buttons that change a message to its card. @param {number} number @param {any} message @param {HTMLElement} card */
  edit(number, message, card) {
    const blocks = Array.isArray(message.blocks) ? message.blocks : [{ block_type: "text", text: message.content }];
    const texts = blocks.filter((one) => one?.block_type === "text");
    const written = texts.map((one) => one.text).join("\n");
    const tied = message.role === "tool" || blocks.some((one) => one?.block_type === "tool_call");
    const whole = texts.every((one) => typeof one.text === "string");
    const [header, ...body] = card.children;
    const place = h("div", { class: "edited", hidden: true });
    const show = (change) => {
      const out = change === null;
      card.classList.toggle("changed", change !== undefined);
      card.classList.toggle("gone", out);
      place.hidden = change === undefined || out;
      body.forEach((one, index) => (one.hidden = !place.hidden && blocks[index]?.block_type === "text"));
      place.replaceChildren(...(place.hidden ? [] : [this.#area(number, change)]));
      for (const one of choices) one.hidden = change !== undefined;
      back.hidden = change === undefined;
    };
    const set = (change) => {
      if (change === undefined) this.#changed.delete(number);
      else this.#changed.set(number, change);
      show(change);
    };
    const label = `message ${number + 1}`;
    const choices = [
      texts.length > 0 &&
        whole &&
        titled("Edit", label, () => {
          set(written);
          place.querySelector("textarea")?.focus();
        }),
      !tied && titled("Leave out", label, () => set(null)),
    ].filter(Boolean);
    const back = titled("Undo", label, () => {
      set(undefined);
      choices[0]?.focus();
    });
    header.append(h("span", { class: "spring" }), ...choices, back);
    card.append(place);
    show(this.#changed.get(number));
  }

  /** @param {number} number @param {string} text */
  #area(number, text) {
    const lines = text.split("\n").length + Math.floor(text.length / 100);
    return h("textarea", {
      "aria-label": `Text of message ${number + 1}`,
      rows: Math.max(2, Math.min(ROWS, lines)),
      value: text,
      on: { input: (event) => this.#changed.set(number, event.target.value) },
    });
  }

  #form() {
    const { record } = this;
    const options = { temperature: undefined, ...scalars(record.options ?? {}) };
    const fields = schemaForm({
      properties: {
        [MODEL]: { type: "string", description: `Vendor and model, such as openai:gpt-5.6. Empty: ${record.model}.` },
        ...Object.fromEntries(Object.entries(options).map(([name, value]) => [name, described(value)])),
        [FURTHER]: { type: "object", description: "Under the names of the vendor, as JSON." },
        [ASK]: { type: "boolean", default: true, description: "Each tool call of the new run waits for an approval." },
      },
    });
    const send = h("button", { class: "button primary", text: "Run from here" });
    const form = h(
      "form",
      { class: "stack try-again" },
      h("h2", { text: "Try again" }),
      h("p", {
        class: "hint",
        text: "A new run shares the work before this call. Models are asked from here on; this run stays as it is.",
      }),
      fields.element,
      h("div", { class: "actions" }, send),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const read = fields.read();
      if (!read || send.disabled) return;
      send.disabled = true;
      void attempt(() => this.#run(form, read, options)).finally(() => (send.disabled = false));
    });
    return form;
  }

  /** @param {HTMLElement} form @param {Record<string, any>} read @param {Record<string, any>} before */
  async #run(form, read, before) {
    const { session, call } = this;
    const { [MODEL]: llm, [FURTHER]: further, [ASK]: ask, ...named } = read;
    const set = Object.entries(named).filter(([name, value]) => value !== before[name]);
    const gone = Object.keys(before).filter((name) => before[name] !== undefined && !(name in named));
    const run = await session.source.tryCall(session.id, {
      record: call.entry.id,
      index: call.index,
      messages: Object.fromEntries(this.#changed),
      options: { ...Object.fromEntries([...set, ...gone.map((name) => [name, null])]), ...further },
      ask_before_tools: ask,
      ...(llm?.trim() ? { llm: llm.trim() } : {}),
    });
    const link = h("a", {
      href: address({ run: run.handler_id }),
      class: "button primary",
      text: "Open the new run",
    });
    form.replaceChildren(
      h("h2", { text: "Try again" }),
      h("p", {}, "Forked as ", h("code", { text: run.handler_id })),
      h(
        "div",
        { class: "actions" },
        h("a", { href: comparison(session.id, run.handler_id), class: "button", text: "Compare the two runs" }),
        link,
      ),
    );
    link.focus();
  }
}

/** A quiet button with an accessible name that tells the message. @param {string} text @param {string} label @param {() => void} pressed */
function titled(text, label, pressed) {
  const made = button(text, pressed, { class: "quiet" });
  made.setAttribute("aria-label", `${text}: ${label}`);
  return made;
}

/** @param {Record<string, any>} options */
const scalars = (options) =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value)));

/** The schema of a parameter. @param {any} value */
const described = (value) => ({ type: value === undefined ? "number" : typeof value, default: value });
